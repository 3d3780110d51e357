"""The answers of the submit script, for the batcher of the queue (`valkey/script_batcher.py`)."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, cast

from jobwire.job.errors import BackendUnavailable, ContractError
from jobwire.job.messages import Already, Full, JobId, Mismatch, SubmitAnswer, Submitted
from jobwire.systems.jobs.replies import backend_unavailable
from jobwire.systems.jobs.scripts import script
from jobwire.valkey import Arg, Connection, Reply, ValkeyError
from jobwire.valkey.script_batcher import ScriptBatcher

_SUBMIT: Final = script("submit")
_WIDTH: Final = 3

SubmitBatcher: TypeAlias = ScriptBatcher[SubmitAnswer]


def submit_batcher(
    connection: Connection, queue: str, limits: Callable[[], Sequence[Arg]]
) -> SubmitBatcher:
    """Submissions of one turn of the event loop in one call of `submit`."""
    return ScriptBatcher(connection, _SUBMIT, (queue,), limits, _WIDTH, _set_answer, _failure)


def _set_answer(waiter: "asyncio.Future[SubmitAnswer]", answer: Sequence[Reply]) -> None:
    word, text, number = cast("tuple[str, str, int]", answer)
    if word == "submitted":
        waiter.set_result(Submitted(JobId(text), number))
    elif word == "already":
        waiter.set_result(Already(JobId(text)))
    elif word == "mismatch":
        waiter.set_result(Mismatch(JobId(text)))
    elif word == "full":
        waiter.set_result(Full(number))
    elif word in ("tenant_open", "tenant_retained", "tenant_bytes"):
        waiter.set_result(Full(number, word))
    elif word == "refused":
        waiter.set_exception(BackendUnavailable("the job server refuses to write", detail=text))
    else:
        waiter.set_exception(
            ContractError("unknown answer of the submit script", clause="J-9", detail=word)
        )


def _failure(error: BaseException) -> BaseException:
    return backend_unavailable(error) if isinstance(error, ValkeyError) else error
