"""Answers that are read when awaited: a script's call goes out at once, its reply is understood
later, and no task is made for it.

Used by the queue and the engine, whose functions promise "sent when called". It also is the door
through which the toolkit's errors leave this room as the heart's.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Generic, TypeVar, cast

from jobwire.job.errors import BackendUnavailable
from jobwire.valkey import Arg, Reply, ServerError, ValkeyError

T_co = TypeVar("T_co", covariant=True)


class LazyReply(Generic[T_co]):
    """An awaitable that turns a raw reply into what it means."""

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
    """The server did not answer, or will not write: asking the same again later is right."""
    if isinstance(error, ServerError):
        # Out of memory, read-only, loading: the server's own words say which.
        return BackendUnavailable("the job server refuses to write", detail=str(error))
    return BackendUnavailable("the job server does not answer", detail=str(error))


def wire_text(text: str) -> Arg:
    """What a stranger wrote may be no text; it goes back to the server as the bytes it was."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape")


def server_ms(time: Reply) -> int:
    """What TIME answered, in milliseconds."""
    seconds, micros = cast("tuple[str, str]", time)
    return int(seconds) * 1000 + int(micros) // 1000


async def collect(replies: Sequence[Awaitable[Reply]]) -> list[Reply]:
    """All answers, in order. If one failed, all have been waited for before that is raised."""
    answers: list[Reply] = []
    trouble: ValkeyError | None = None
    for reply in replies:
        try:
            answers.append(await reply)
        except ValkeyError as error:
            trouble = trouble or error
    if trouble is not None:
        raise backend_unavailable(trouble) from trouble
    return answers
