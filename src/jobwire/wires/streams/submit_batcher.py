"""Submissions of one turn of the event loop, sent to the server in one call.

The queue adds each submission. A hundred callers that submit at the same time cost the server one
script instead of a hundred; a single caller does not wait. Each submission has its own answer, and
a caller that is cancelled withdraws nothing. Nothing is checked or repeated here.
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

_MAX_JOBS: Final = 100
"""Jobs in one script: more would delay the calls of other clients, and hardly be cheaper."""
_MAX_CHARACTERS: Final = 256 * 1024
"""Characters of payloads in one script."""

Waiter = asyncio.Future[SubmitAnswer]


class SubmitBatcher:
    def __init__(self, connection: Connection, queue: str, limits: tuple[int, int, int]) -> None:
        self._connection = connection
        self._declared = (queue,)
        self._limits = limits
        self._waiters: list[Waiter] = []
        self._jobs: list[Sequence[Arg]] = []
        self._characters = 0

    def add(self, job: Sequence[Arg], characters: int) -> Awaitable[SubmitAnswer]:
        """Send a job by the end of this turn of the loop; await the result for its answer."""
        loop = asyncio.get_running_loop()
        waiter: Waiter = loop.create_future()
        if not self._waiters:
            loop.call_soon(self.send)
        self._waiters.append(waiter)
        self._jobs.append(job)
        self._characters += characters
        if len(self._waiters) >= _MAX_JOBS or self._characters >= _MAX_CHARACTERS:
            self.send()
        return waiter

    def send(self) -> None:
        """Send what was added so far; called before calls that must not overtake it."""
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, []
        jobs, self._jobs = self._jobs, []
        self._characters = 0
        try:
            self._call(waiters, jobs)
        except ValkeyError as error:  # too many calls are queued already
            _fail(waiters, error)
        except Exception:  # noqa: BLE001 - raised in the caller at fault, below
            # One job cannot be encoded: send each alone, so that only its caller gets the error.
            for waiter, job in zip(waiters, jobs, strict=True):
                try:
                    self._call([waiter], [job])
                except Exception as error:  # noqa: BLE001 - raised in its caller
                    _fail([waiter], error)

    def _call(self, waiters: Sequence[Waiter], jobs: Sequence[Sequence[Arg]]) -> None:
        args: list[Arg] = [*self._limits]
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
        answers = cast("list[str | int]", reply.result())
        for at, waiter in enumerate(waiters):
            if not waiter.done():
                _set_answer(waiter, *cast("tuple[str, str, int]", answers[3 * at : 3 * at + 3]))


def _set_answer(waiter: Waiter, word: str, text: str, number: int) -> None:
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
            ContractError("unknown answer of the submit script", clause="J-9", detail=word)
        )


def _fail(waiters: Sequence[Waiter], error: BaseException) -> None:
    for waiter in waiters:
        if not waiter.done():
            # One exception per caller: each gets its own traceback.
            own = backend_unavailable(error) if isinstance(error, ValkeyError) else error
            if own is not error:
                own.__cause__ = error
            waiter.set_exception(own)
