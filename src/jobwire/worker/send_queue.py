"""What a queue's loop has to send: reports and outcomes, collected until the next turn of the loop.

Kept in this order for each job: its reports, one flight after the other, then its outcome, which
leaves in the same write as the last of them. An outcome never overtakes a report that is on its
way: should that be lost with the connection, it could not be said again.
"""

from collections import deque
from collections.abc import Sequence

from jobwire.job.messages import Outcome, Report
from jobwire.worker.run import Run

ReportBatch = list[tuple[Run, list[Report]]]
OutcomeBatch = list[tuple[Run, Outcome]]


class SendQueue:
    """Filled as things happen, emptied once a turn."""

    def __init__(self) -> None:
        self._speaking: deque[Run] = deque()
        self._ends: OutcomeBatch = []
        self._held_back: dict[Run, Outcome] = {}

    def __bool__(self) -> bool:
        return bool(self._speaking or self._ends)

    def has_reports(self, run: Run) -> None:
        """It has something unsent."""
        if run.buffer is not None and not run.buffer.in_flight and len(run.buffer.unsent) == 1:
            self._speaking.append(run)

    def decided(self, run: Run, outcome: Outcome) -> None:
        """It ends so, after all its reports."""
        if run.buffer is not None and run.buffer.in_flight:
            self._held_back[run] = outcome
        else:
            self._ends.append((run, outcome))

    def reports(self) -> ReportBatch:
        """All that may go now; they fly until `landed`."""
        said: ReportBatch = []
        while self._speaking:
            voice = (run := self._speaking.popleft()).buffer
            if voice is not None and voice.unsent:
                voice.in_flight = True
                said.append((run, voice.unsent))
                voice.unsent = []
        return said

    def outcomes(self, limit: int) -> OutcomeBatch:
        """Outcomes that may go now, the oldest first."""
        now, self._ends = self._ends[:limit], self._ends[limit:]
        return now

    def acknowledged(self, run: Run, unsaid: Sequence[Report] = ()) -> None:
        """Its reports were answered; `unsaid` are those that must be said again."""
        voice = run.buffer
        assert voice is not None
        voice.in_flight = False
        if unsaid and not voice.closed:
            voice.unsent[:0] = unsaid
        if voice.unsent:
            self._speaking.append(run)
        if (outcome := self._held_back.pop(run, None)) is not None:
            self._ends.append((run, outcome))

    def requeue(self, ends: OutcomeBatch) -> None:
        """These were not answered: they go first next time."""
        self._ends[:0] = ends
