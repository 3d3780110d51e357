"""Groups failed jobs by kind: task, error code, first line of the message (O-11). Pure.

For systems that keep failed jobs and no counts of them. Streams counts in its scripts, in the same
way.
"""

import re
from typing import Final

from jobwire.api.overview import FailureInfo
from jobwire.gateway.operator_view import OperatorView

HOUR_MS: Final = 3_600_000
_MAX_LINE: Final = 200
_MAX_KINDS: Final = 400
"""Further kinds are counted under the empty message of their code."""
_IDS: Final = re.compile(
    r"[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+|[0-9a-f]{8,}|[0-9]{5,}", re.IGNORECASE
)


def first_line(message: str) -> str:
    """The first line, in which `…` stands for ids and long numbers."""
    return _IDS.sub("…", message.lstrip()[:_MAX_LINE].partition("\n")[0].rstrip())


class FailureKinds:
    """Collects the failed jobs of one system in the last hours."""

    def __init__(self, view: OperatorView, hours: int, now_ms: int) -> None:
        self._view = view
        self._hours = hours
        self._first_hour = now_ms // HOUR_MS - hours + 1
        self._kinds: dict[tuple[str, str, str, str], _Kind] = {}

    @property
    def since_ms(self) -> int:
        """Older failures are not counted."""
        return self._first_hour * HOUR_MS

    def add(
        self, name: str, task: str, code: str, message: str, at_ms: int, job_id: str, worker: str
    ) -> None:
        """Add one failed job; `name` is the row that it belongs to."""
        hour = at_ms // HOUR_MS - self._first_hour
        if hour < 0:
            return
        key = (name, task, code, first_line(message))
        if key not in self._kinds and len(self._kinds) >= _MAX_KINDS:
            key = (name, task, code, "")
        kind = self._kinds.setdefault(key, _Kind(self._hours, at_ms, worker))
        kind.add(min(hour, self._hours - 1), at_ms, job_id, worker)

    def bodies(self) -> list[FailureInfo]:
        return [
            FailureInfo(
                system=self._view.system,
                name=name,
                wire=self._view.wire,
                task=task,
                code=code,
                message=message,
                count=sum(kind.by_hour),
                first_ts=kind.first_ms,
                last_ts=kind.last_ms,
                by_hour=kind.by_hour,
                sample_job_id=kind.sample,
                worker=kind.worker or None,
            )
            for (name, task, code, message), kind in self._kinds.items()
        ]


class _Kind:
    def __init__(self, hours: int, at_ms: int, worker: str) -> None:
        self.by_hour = [0] * hours
        self.first_ms = at_ms
        self.last_ms = -1
        self.sample = ""
        self.worker = worker
        """Where all of them ran; empty if there were several workers."""

    def add(self, hour: int, at_ms: int, job_id: str, worker: str) -> None:
        self.by_hour[hour] += 1
        self.first_ms = min(self.first_ms, at_ms)
        if at_ms > self.last_ms:
            self.last_ms, self.sample = at_ms, job_id
        if worker != self.worker:
            self.worker = ""
