"""What a worker's jobs do, counted as it happens; read by whoever shows it (`metrics.py`).

The loop asks for an Account a task when it begins, and writes a line into it when a job is held and
when its outcome is decided: no look-up a job, so it is always on. It knows no metrics library.
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, NamedTuple

from jobwire.job.messages import Canceled, Done, Failed, Outcome, Released, RetryLater

BOUNDS_S: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
    *(10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0),
)
LOST: Final = "lost"
_WORDS: Final[dict[type[Outcome] | None, str]] = {
    Done: "done",
    Failed: "failed",
    Canceled: "canceled",
    RetryLater: "retried",
    Released: "given_back",
    None: LOST,
}


class Series(NamedTuple):
    """Which jobs are counted together."""

    queue: str
    task: str


class Histogram:
    """How long things took."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.seconds += seconds


class TaskMetrics:
    """The jobs of one task on one queue."""

    __slots__ = ("_ended", "_held", "ran", "waited")

    def __init__(self) -> None:
        self._ended: dict[type[Outcome] | None, int] = dict.fromkeys(_WORDS, 0)
        self._held = 0
        self.ran = Histogram()
        """From its start here to its outcome."""
        self.waited = Histogram()
        """From its making to its first start."""

    def started(self, waited_s: float | None) -> None:
        """A job is held and will run; None: it had begun before, here or elsewhere."""
        self._held += 1
        if waited_s is not None:
            # The job's time is its server's, ours may differ: never less than nothing.
            self.waited.add(waited_s if waited_s > 0 else 0.0)

    def ended(self, outcome: Outcome | None, ran_s: float | None) -> None:
        """An outcome is decided; None: it belongs to another worker now. None of `ran_s`: it did
        not run at all."""
        self._ended[None if outcome is None else type(outcome)] += 1
        if ran_s is not None:
            self._held -= 1
            self.ran.add(ran_s)

    def lost(self) -> None:
        """The outcome was decided, but another worker had the job by then."""
        self._ended[None] += 1

    @property
    def held(self) -> int:
        """Jobs in work now."""
        return self._held

    @property
    def outcomes(self) -> Mapping[str, int]:
        """How many ended how; `lost` are those that another worker has now."""
        return {_WORDS[kind]: count for kind, count in self._ended.items() if count}


class WorkerMetrics:
    """One for all queues of a worker."""

    def __init__(self) -> None:
        self.tasks: dict[Series, TaskMetrics] = {}

    def task(self, queue: str, task: str) -> TaskMetrics:
        """The account of a task; all queues and tasks are known before the first job comes."""
        return self.tasks.setdefault(Series(queue, task), TaskMetrics())

    @property
    def held(self) -> int:
        """Jobs in work now."""
        return sum(account.held for account in self.tasks.values())
