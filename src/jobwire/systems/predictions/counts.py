"""Counts of what happened in this process, for metrics. Plain numbers: no library is needed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counts:
    """How often each kind of event happened; `open_tasks` as of the last pass of reconcile."""

    events: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    open_tasks: int | None = None

    def add(self, event: str, kind: str) -> None:
        """Count one event: its name and its kind."""
        self.events[event, kind] += 1
