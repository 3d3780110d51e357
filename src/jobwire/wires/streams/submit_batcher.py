"""Submissions of one turn of the event loop, on their way to the server in one call.

The queue puts each one here. A hundred callers that submit at the same time cost the server one
script instead of a hundred; a caller that is alone waits for nobody. Each is answered for itself,
and a caller that leaves takes nothing back. It checks nothing and repeats nothing.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Final, cast

from jobwire.job.errors import BackendUnavailable, ContractError
from jobwire.job.messages import Already, Full, JobId, Mismatch, SubmitAnswer, Submitted
from jobwire.valkey import Arg, Connection, Reply, ValkeyError
from jobwire.wires.streams.replies import backend_unavailable
from jobwire.wires.streams.scripts import script

_SUBMIT: Final = script("submit")

_MOST: Final = 100
"""Jobs in one script: more would hold up everybody else's, and hardly be cheaper."""
_MOST_CHARACTERS: Final = 256 * 1024
"""Of payloads in one script."""

Waiter = asyncio.Future[SubmitAnswer]


class SubmitBatcher:
    def __init__(self, connection: Connection, queue: str, bounds: tuple[int, int, int]) -> None:
        self._connection = connection
        self._declared = (queue,)
        self._bounds = bounds
        self._waiters: list[Waiter] = []
        self._jobs: list[Sequence[Arg]] = []
        self._characters = 0

    def add(self, job: Sequence[Arg], characters: int) -> Awaitable[SubmitAnswer]:
        """Send a job, at the end of this turn at the latest; awaiting gives the answer to it."""
        loop = asyncio.get_running_loop()
        waiter: Waiter = loop.create_future()
        if not self._waiters:
            loop.call_soon(self.send)
        self._waiters.append(waiter)
        self._jobs.append(job)
        self._characters += characters
        if len(self._waiters) >= _MOST or self._characters >= _MOST_CHARACTERS:
            self.send()
        return waiter

    def send(self) -> None:
        """Send what has come together; whoever needs it to be on its way calls this."""
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, []
        jobs, self._jobs = self._jobs, []
        self._characters = 0
        try:
            self._call(waiters, jobs)
        except ValkeyError as error:  # too much waits for the server already
            _fail(waiters, error)
        except Exception:  # noqa: BLE001 - told to whose fault it is, below
            # One of them is nothing that could be sent, and the others did not choose its company.
            for waiter, job in zip(waiters, jobs, strict=True):
                try:
                    self._call([waiter], [job])
                except Exception as error:  # noqa: BLE001 - it is its caller's
                    _fail([waiter], error)

    def _call(self, waiters: Sequence[Waiter], jobs: Sequence[Sequence[Arg]]) -> None:
        args: list[Arg] = [*self._bounds]
        for job in jobs:
            args.append(len(job))
            args += job
        reply = self._connection.run(_SUBMIT, self._declared, args)
        cast("asyncio.Future[Reply]", reply).add_done_callback(partial(_answer, waiters))


def _answer(waiters: Sequence[Waiter], reply: "asyncio.Future[Reply]") -> None:
    if reply.cancelled():
        _fail(waiters, ValkeyError("the call was cancelled"))
    elif (error := reply.exception()) is not None:
        _fail(waiters, error)
    else:
        said = cast("list[str | int]", reply.result())
        for at, waiter in enumerate(waiters):
            if not waiter.done():
                _tell(waiter, *cast("tuple[str, str, int]", said[3 * at : 3 * at + 3]))


def _tell(waiter: Waiter, word: str, text: str, number: int) -> None:
    if word == "submitted":
        waiter.set_result(Submitted(JobId(text), number))
    elif word == "already":
        waiter.set_result(Already(JobId(text)))
    elif word == "mismatch":
        waiter.set_result(Mismatch(JobId(text)))
    elif word == "full":
        waiter.set_result(Full(number))
    elif word in ("tenant_open", "tenant_retained"):
        waiter.set_result(Full(number, word))
    elif word == "refused":
        waiter.set_exception(BackendUnavailable("the job server refuses to write", detail=text))
    else:
        waiter.set_exception(
            ContractError("submit answered something else", clause="J-9", detail=word)
        )


def _fail(waiters: Sequence[Waiter], error: BaseException) -> None:
    for waiter in waiters:
        if not waiter.done():
            # One each: an exception belongs to whoever it is raised in.
            own = backend_unavailable(error) if isinstance(error, ValkeyError) else error
            if own is not error:
                own.__cause__ = error
            waiter.set_exception(own)
