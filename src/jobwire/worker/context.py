"""What a handler knows of its job, and how it speaks while it works.

One kind of context for handlers of every kind. Its reports may be awaited and, in an `async def`,
should be: that is where a handler waits when it speaks faster than the server listens. In a `def`
the same call waits by itself and returns when there is room.

It never touches a wire: what is said goes to an outlet (`outlets.py`, or the pipe of a child).
"""

from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol

from jobwire.job.messages import JobInfo, Report, check_kind
from jobwire.worker.codec import MAX_REPORT_BYTES, to_json

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # A bare `Context` is one whose payload is any JSON object.
    P = TypeVar("P", default=dict[str, Any])
else:
    from typing import TypeVar

    P = TypeVar("P")

_LEVELS: Final = frozenset({"debug", "info", "warning", "error"})


class ReportSink(Protocol):
    """Where the words of one running job go."""

    @property
    def stopped(self) -> bool:
        """Whether the handler has been told to stop."""
        ...

    def add(self, report: Report) -> Awaitable[None]:
        """Pass it on, in order; CancelledError where the job is no longer the handler's."""
        ...

    def restart_timeout(self) -> None:
        """Count the job's `timeout_s` from now on."""
        ...


class Context(Generic[P]):
    """Given to a handler: `async def chat(ctx: Context[Chat]) -> str`."""

    __slots__ = ("_outlet", "job", "partial", "payload")

    def __init__(self, job: JobInfo, payload: P, outlet: ReportSink) -> None:
        self.job = job
        self.payload = payload
        """What was asked for; of the annotated type, if there is one."""
        self.partial: object = None
        """What there is of a result so far. Set it as you go: should the job fail, time out or be
        canceled, it is kept with the error."""
        self._outlet = outlet

    @property
    def attempt(self) -> int:
        """1 at first; one more after each failed attempt."""
        return self.job.attempt

    @property
    def cancelled(self) -> bool:
        """Whether to stop. An `async def` is interrupted anyway; a `def` has to look."""
        return self._outlet.stopped

    def restart_timeout(self) -> None:
        """Count the job's `timeout_s` anew from now: for work that had to wait for its turn, for
        example for a model that others use."""
        self._outlet.restart_timeout()

    def progress(self, percent: float, message: str = "") -> Awaitable[None]:
        """How far it is, 0 to 100, and in words what it is at."""
        if not 0 <= percent <= 100:
            raise ValueError(f"progress({percent!r}): percent must lie between 0 and 100")
        return self.emit("progress", {"percent": percent, "message": message})

    def log(self, message: str, level: str = "info", **fields: object) -> Awaitable[None]:
        """A line for those who watch the job."""
        if level not in _LEVELS:
            raise ValueError(f"log(level={level!r}): known are {', '.join(sorted(_LEVELS))}")
        return self.emit("log", {"level": level, "message": message, **fields})

    def emit(self, kind: str, data: object = None, *, step: str = "") -> Awaitable[None]:
        """Anything else: an event of your own name, with data that has a JSON form."""
        check_kind(kind)
        data_json = "{}" if data is None else to_json(data, MAX_REPORT_BYTES)
        return self._outlet.add(Report(kind, data_json, step))


class ReportAdded:
    """The answer to a report that needed no waiting; awaiting it takes no time."""

    __slots__ = ()

    def __await__(self) -> Generator[object, None, None]:
        return
        yield  # what makes this a generator


REPORT_ADDED: Final = ReportAdded()
