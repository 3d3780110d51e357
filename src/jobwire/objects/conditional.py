"""A write that decides: sent, and sent again, until it is certain who won.

Called by `Bucket.create` and `Bucket.replace`. A refusal or a lost answer is never taken at its
word, because the refusal may be of our own repetition: the object is read, and its trail of
writers says what happened. It never guesses; what cannot be told is `AnswerLost`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from jobwire.objects.answers import Changed, Created, Exists, Found, Missing, Replaced
from jobwire.objects.config import BucketConfig
from jobwire.objects.errors import AnswerLost, Unavailable
from jobwire.objects.faults import Fault
from jobwire.objects.write_history import OVERTAKEN_ETAG, Verdict, Version, extended, judge

# Between the sendings of one write; a restarting server needs about a second.
_PAUSES_S: Final = (0.05, 0.2, 0.5, 1.0, 2.0)

Send = Callable[[], Awaitable[Version | Fault]]
Read = Callable[[], Awaitable[Found | Missing]]


async def create(
    config: BucketConfig, key: str, writer: str, send: Send, read: Read
) -> Created | Exists:
    """Create an object that must not exist."""
    won, found = await _settle(config, key, writer, None, send, read)
    if won is not None:
        return Created(won)
    assert isinstance(found, Found)
    return Exists(found)


async def replace(
    config: BucketConfig, key: str, writer: str, seen: Version, send: Send, read: Read
) -> Replaced | Changed | Missing:
    """Replace an object that must still be what was seen."""
    won, found = await _settle(config, key, writer, seen, send, read)
    if won is not None:
        return Replaced(won)
    assert found is not None
    return Changed(found) if isinstance(found, Found) else found


async def _settle(
    config: BucketConfig,
    key: str,
    writer: str,
    seen: Version | None,
    send: Send,
    read: Read,
) -> tuple[Version | None, Found | Missing | None]:
    """Return the version that we wrote, or else what stands in its place."""
    doubt = False
    doing = f"PUT {key}"
    for pause_s in (*_PAUSES_S, None):
        answer = await send()
        if isinstance(answer, Version):
            return answer, None
        if answer.unanswered:
            doubt = True
        elif not answer.refused:
            raise answer.error(config, doing)
        try:
            found = await read()
        except Unavailable as error:
            if pause_s is None:
                raise Unavailable(f"{error}; whether {key} was written is unknown") from error
        else:
            now = found.version if isinstance(found, Found) else None
            match judge(writer=writer, seen=seen, found=now, doubt=doubt):
                case Verdict.WON:
                    return now, None
                case Verdict.OVERTAKEN:
                    return Version(OVERTAKEN_ETAG, extended(writer, seen)), None
                case Verdict.LOST | Verdict.GONE:
                    return None, found
                case Verdict.UNCLEAR:
                    raise AnswerLost(
                        f"the answer to {doing} was lost, and others have rewritten the object "
                        f"since: read {key} again and decide anew"
                    )
                case Verdict.AGAIN if pause_s is None:
                    tries = len(_PAUSES_S) + 1
                    raise Unavailable(f"{answer.error(config, doing)}; gave up after {tries} tries")
                case Verdict.AGAIN:
                    pass
        # Losers of one race come back at different times.
        await asyncio.sleep(pause_s * random.uniform(0.5, 1.5) if pause_s else 0)  # noqa: S311
    raise AssertionError("the last sending returns or raises")
