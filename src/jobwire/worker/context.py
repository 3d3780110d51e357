"""What a handler knows of its job, and how it reports while it runs.

One Context for handlers of every kind. Its reports may be awaited and, in an `async def`, should
be: that is where a handler waits when it reports faster than the server accepts. In a `def` the
same call blocks until the report is accepted.

It knows no wire: reports go to a sink (`reports.py`).
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final, Generic

from jobwire.job.messages import JobInfo, Report, check_kind
from jobwire.worker.codec import MAX_REPORT_BYTES, to_json
from jobwire.worker.reports import ReportSink

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # A bare `Context` has a payload of any JSON object.
    P = TypeVar("P", default=dict[str, Any])
else:
    from typing import TypeVar

    P = TypeVar("P")

_LEVELS: Final = frozenset({"debug", "info", "warning", "error"})


class Context(Generic[P]):
    """Given to a handler: `async def chat(ctx: Context[Chat]) -> str`."""

    __slots__ = ("_sink", "job", "partial", "payload")

    def __init__(self, job: JobInfo, payload: P, sink: ReportSink) -> None:
        self.job = job
        self.payload = payload
        """The job's payload; of the annotated type, if there is one."""
        self.partial: object = None
        """The result so far. Set it as you go: if the job fails, times out or is canceled, it is
        stored with the error."""
        self._sink = sink

    @property
    def attempt(self) -> int:
        """1 at first; one more after each failed attempt."""
        return self.job.attempt

    @property
    def cancelled(self) -> bool:
        """Whether to stop. An `async def` is cancelled anyway; a `def` has to check this."""
        return self._sink.stopped

    def restart_timeout(self) -> None:
        """Count the job's `timeout_s` from now: for work that had to wait for a resource first,
        for example for a model that other jobs use."""
        self._sink.restart_timeout()

    def progress(self, percent: float, message: str = "") -> Awaitable[None]:
        """Report progress, 0 to 100, and the current step as text."""
        if not 0 <= percent <= 100:
            raise ValueError(f"progress({percent!r}): percent must lie between 0 and 100")
        return self.emit("progress", {"percent": percent, "message": message})

    def log(self, message: str, level: str = "info", **fields: object) -> Awaitable[None]:
        """Report a log line to the job's event streams."""
        if level not in _LEVELS:
            raise ValueError(f"log(level={level!r}): known are {', '.join(sorted(_LEVELS))}")
        return self.emit("log", {"level": level, "message": message, **fields})

    def emit(self, kind: str, data: object = None, *, step: str = "") -> Awaitable[None]:
        """Report an event of your own kind, with data that has a JSON form."""
        check_kind(kind)
        data_json = "{}" if data is None else to_json(data, MAX_REPORT_BYTES)
        return self._sink.add(Report(kind, data_json, step))
