"""Counts of a worker's jobs; exported by `collector.py`.

A queue loop gets one TaskMetrics per task when it starts, and counts in it when a job is leased and
when its outcome is decided: no look-up per job, so it is always on. It knows no metrics library.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from jobwire.histogram import Histogram
from jobwire.job.messages import (
    Canceled,
    Done,
    Failed,
    Outcome,
    Postponed,
    RateLimited,
    Released,
    Restarted,
    RetryLater,
    Suspended,
    WaitsForChildren,
)

_BOUNDS_S: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
    *(10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0),
)
LOST: Final = "lost"
_LABELS: Final[dict[type[Outcome] | None, str]] = {
    Done: "done",
    Failed: "failed",
    Canceled: "canceled",
    RetryLater: "retried",
    Released: "released",
    Postponed: "postponed",
    RateLimited: "rate_limited",
    WaitsForChildren: "waits_for_children",
    Suspended: "suspended",
    Restarted: "restarted",
    None: LOST,
}


class Series(NamedTuple):
    """The labels of one task's counts."""

    queue: str
    task: str


class TaskMetrics:
    """The jobs of one task on one queue."""

    __slots__ = ("_ended", "held", "ran", "waited")

    def __init__(self) -> None:
        self._ended: dict[type[Outcome] | None, int] = dict.fromkeys(_LABELS, 0)
        self.held = 0
        """Jobs that run now."""
        self.ran = Histogram(_BOUNDS_S)
        """From start to outcome."""
        self.waited = Histogram(_BOUNDS_S)
        """From submission to first start."""

    def started(self, waited_s: float | None) -> None:
        """A job is leased and will run; None: this is not its first start."""
        self.held += 1
        if waited_s is not None:
            # The server's clock and ours may differ: never negative.
            self.waited.add(waited_s if waited_s > 0 else 0.0)

    def ended(self, outcome: Outcome | None, ran_s: float | None) -> None:
        """An outcome is decided; None: another worker has the job. `ran_s` None: the job did not
        run."""
        self._ended[None if outcome is None else type(outcome)] += 1
        if ran_s is not None:
            self.held -= 1
            self.ran.add(ran_s)

    def lost(self) -> None:
        """The outcome was decided and not written: another worker has the job."""
        self._ended[None] += 1

    @property
    def outcomes(self) -> Mapping[str, int]:
        """Jobs by outcome; `lost`: another worker has the job."""
        return {_LABELS[kind]: count for kind, count in self._ended.items() if count}


class WorkerMetrics:
    """The counts of all queues of a worker."""

    def __init__(self) -> None:
        self.tasks: dict[Series, TaskMetrics] = {}

    def task(self, queue: str, task: str) -> TaskMetrics:
        """The counts of a task; all queues and tasks are known before the first job."""
        return self.tasks.setdefault(Series(queue, task), TaskMetrics())

    @property
    def held(self) -> int:
        """Jobs that run now."""
        return sum(task.held for task in self.tasks.values())
