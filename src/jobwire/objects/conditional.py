"""Conditional writes, repeated until their result is certain.

Called by `Bucket.create` and `Bucket.replace`. After a refusal or a lost reply the object is read:
the refusal may be of a repetition of this write, and the object's write history shows which write
won. A result that cannot be determined is `AnswerLost`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from jobwire.objects.config import BucketConfig
from jobwire.objects.errors import AnswerLost, Unavailable
from jobwire.objects.faults import Fault
from jobwire.objects.results import Found, Missing
from jobwire.objects.write_history import OVERTAKEN_ETAG, Verdict, Version, appended, judge

# Between the attempts of one write; a restarting server needs about a second.
_BACKOFF_S: Final = (0.05, 0.2, 0.5, 1.0, 2.0)

Send = Callable[[], Awaitable[Version | Fault]]
Read = Callable[[], Awaitable[Found | Missing]]


async def settle(
    config: BucketConfig, key: str, writer: str, seen: Version | None, send: Send, read: Read
) -> Version | Found | Missing:
    """Return the version that this call wrote, or else the object's current state.

    `seen` is the version that is replaced; None for an object that must not exist.
    """
    uncertain = False
    operation = f"PUT {key}"
    for delay_s in (*_BACKOFF_S, None):
        reply = await send()
        if isinstance(reply, Version):
            return reply
        if reply.unanswered:
            uncertain = True
        elif not reply.refused:
            raise reply.error(config, operation)
        try:
            found = await read()
        except Unavailable as error:
            if delay_s is None:
                raise Unavailable(f"{error}; whether {key} was written is unknown") from error
        else:
            current = found.version if isinstance(found, Found) else None
            match judge(writer=writer, seen=seen, found=current, uncertain=uncertain):
                case Verdict.WON:
                    assert current is not None
                    return current
                case Verdict.OVERTAKEN:
                    return Version(OVERTAKEN_ETAG, appended(writer, seen))
                case Verdict.LOST | Verdict.GONE:
                    return found
                case Verdict.UNCLEAR:
                    raise AnswerLost(
                        f"the reply to {operation} was lost, and other writers have replaced the "
                        f"object since: read {key} and decide again"
                    )
                case Verdict.RETRY if delay_s is None:
                    attempts = len(_BACKOFF_S) + 1
                    raise Unavailable(f"{reply.error(config, operation)}; attempts={attempts}")
                case Verdict.RETRY:
                    pass
        # Jitter, so that concurrent writers do not repeat at the same time.
        await asyncio.sleep(delay_s * random.uniform(0.5, 1.5) if delay_s else 0)  # noqa: S311
    raise AssertionError("the last attempt returns or raises")
