"""What a worker's jobs do, counted as it happens; read by whoever shows it (`metrics.py`).

The loop calls it once when a job is held and once when its outcome is decided: a few dictionary
look-ups each, so it is always on. It knows no metrics library.
"""

import time
from bisect import bisect_left
from collections import Counter
from typing import Final, NamedTuple

from jobwire.job.messages import Canceled, Done, Failed, GivenBack, Held, Outcome, Token, TryAgain

BOUNDS_S: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
    *(10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0),
)
LOST: Final = "lost"
_WORDS: Final[dict[type[Outcome], str]] = {
    Done: "done",
    Failed: "failed",
    Canceled: "canceled",
    TryAgain: "retried",
    GivenBack: "given_back",
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


class Tally:
    """One for all queues of a worker."""

    def __init__(self) -> None:
        self.outcomes: Counter[tuple[Series, str]] = Counter()
        """How many ended how; `lost` are those that another worker has now."""
        self.ran: dict[Series, Histogram] = {}
        """From its start here to its outcome."""
        self.waited: dict[Series, Histogram] = {}
        """From its making to its first start."""
        self._began_s: dict[Token, float] = {}

    @property
    def held(self) -> int:
        """Jobs in work now."""
        return len(self._began_s)

    def began(self, held: Held, series: Series) -> None:
        """A job is held, and will run."""
        self._began_s[held.token] = time.monotonic()
        if held.job.deliveries <= 1 and held.job.attempt <= 1:
            waited = self.waited.get(series)
            if waited is None:
                waited = self.waited[series] = Histogram()
            # The job's time is its server's, ours may differ: never less than nothing.
            waited.add(max(0.0, time.time() - held.job.created_ms / 1000))

    def over(self, held: Held, series: Series, outcome: Outcome | None) -> None:
        """Its outcome is decided; None: it belongs to another worker now."""
        word = LOST if outcome is None else _WORDS[type(outcome)]
        self.outcomes[series, word] += 1
        began_s = self._began_s.pop(held.token, None)
        if began_s is not None:
            ran = self.ran.get(series)
            if ran is None:
                ran = self.ran[series] = Histogram()
            ran.add(time.monotonic() - began_s)

    def refused(self, series: Series) -> None:
        """The outcome was decided, but another worker had the job by then."""
        self.outcomes[series, LOST] += 1
