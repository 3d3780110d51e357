"""Errors and refusals of the server as the Engine protocol has them."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from jobwire.job.errors import BackendUnavailable
from jobwire.job.messages import SettleAnswer
from jobwire.systems.queues.contract import Refusal
from jobwire.valkey import ServerError, ValkeyError

_ANSWERS: Final = {
    Refusal.MISSING: SettleAnswer.GONE,
    Refusal.NO_LOCK: SettleAnswer.LOST,
    Refusal.FOREIGN_LOCK: SettleAnswer.LOST,
    Refusal.NOT_ACTIVE: SettleAnswer.LOST,
}


_OF_KEYS: Final = frozenset({"NOPERM", "WRONGTYPE"})


def is_of_keys(error: ValkeyError) -> bool:
    """The server answers, and refuses the keys of a queue: other queues need not wait."""
    return isinstance(error, ServerError) and error.code in _OF_KEYS


def unavailable(error: ValkeyError) -> BackendUnavailable:
    """The server did not answer, or refuses to write: the call may be repeated later."""
    if isinstance(error, ServerError):
        return BackendUnavailable("the queue server refuses to write", detail=str(error))
    return BackendUnavailable("the queue server does not answer", detail=str(error))


@contextmanager
def raises_unavailable() -> Generator[None]:
    """Around calls of the server: an error of theirs becomes BackendUnavailable."""
    try:
        yield
    except ValkeyError as error:
        raise unavailable(error) from error


def settle_answer(answer: object) -> SettleAnswer:
    """What a settle did: a Refusal, or anything else for an attempt that is over."""
    return _ANSWERS[answer] if isinstance(answer, Refusal) else SettleAnswer.SETTLED
