"""Replies that are parsed when awaited: the call is sent at once, and no task is created for it.

Used by the queue and the engine, whose methods send when called. Errors of the toolkit become
BackendUnavailable here.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Generic, TypeVar, cast

from jobwire.job.errors import BackendUnavailable
from jobwire.valkey import Reply, ServerError, ValkeyError

T_co = TypeVar("T_co", covariant=True)


class LazyReply(Generic[T_co]):
    """An awaitable that parses a raw reply."""

    __slots__ = ("_read", "_reply")

    def __init__(self, reply: Awaitable[Reply], read: Callable[[Reply], T_co]) -> None:
        self._reply = reply
        self._read = read

    def __await__(self) -> Generator[object, None, T_co]:
        try:
            reply = yield from self._reply.__await__()
        except ValkeyError as error:
            raise backend_unavailable(error) from error
        return self._read(reply)


def backend_unavailable(error: ValkeyError) -> BackendUnavailable:
    """The server did not answer, or refuses to write: the call may be repeated later."""
    if isinstance(error, ServerError):
        # Out of memory, read-only, loading: the server's message has the reason.
        return BackendUnavailable("the job server refuses to write", detail=str(error))
    return BackendUnavailable("the job server does not answer", detail=str(error))


def server_ms(time: Reply) -> int:
    """The reply to TIME, in milliseconds."""
    seconds, micros = cast("tuple[str, str]", time)
    return int(seconds) * 1000 + int(micros) // 1000


def pairs(flat: Sequence[str]) -> dict[str, str]:
    """A flat list of names and values, as a map."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


async def collect(
    replies: Sequence[Awaitable[Reply]], *, none_if_refused: bool = False
) -> list[Reply]:
    """All replies, in order. A failure is raised after all of them were awaited. With
    `none_if_refused`, a command that the server refuses is answered with None: for keys that may
    have another type, and streams that may be missing or have no group."""
    answers: list[Reply] = []
    failure: ValkeyError | None = None
    for reply in replies:
        try:
            answers.append(await reply)
        except ValkeyError as error:
            if none_if_refused and isinstance(error, ServerError):
                answers.append(None)
            else:
                failure = failure or error
    if failure is not None:
        raise backend_unavailable(failure) from failure
    return answers
