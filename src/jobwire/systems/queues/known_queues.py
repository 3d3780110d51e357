"""The queues of a server: those that the settings name, and those that a bounded scan finds (B-18).

For gateways. The scan is a maintenance task: a request never scans. One pass over the key space is
made in small steps; a queue that a whole pass has not seen is forgotten.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, cast

from jobwire.job.engine import MaintenanceResult, MaintenanceTask
from jobwire.systems.queues.checks import is_queue_name
from jobwire.systems.queues.contract import Keys
from jobwire.systems.queues.replies import raises_unavailable
from jobwire.valkey import Connection

MAX_FOUND: Final = 1_000
"""Queues that a scan keeps, besides those of the settings."""
_PERIOD_S: Final = 5.0
_MAX_PAUSE: Final = 12
"""Periods between two passes over a large server."""
_CALLS: Final = 10
"""Calls of one step; there is a pause between steps."""
_KEYS: Final = 1_000
_SPECIAL: Final = re.compile(r"([\\*?\[\]^])")


class KnownQueues:
    def __init__(self, connection: Connection, prefix: str, names: Iterable[str] = ()) -> None:
        self._connection = connection
        self._named = tuple(dict.fromkeys(names))
        self._head = prefix
        self._tail = Keys("", prefix).meta.removeprefix(f"{prefix}::")
        self._cursor = "0"
        self._found: set[str] = set()
        self._pass: set[str] = set()
        """What the current pass has found so far."""
        self._steps = 0
        self._pause = 0

    @property
    def names(self) -> Sequence[str]:
        """The queues that are known: those of the settings first."""
        return (*self._named, *sorted(self._found.difference(self._named)))

    def add(self, name: str) -> None:
        """A queue that was just made or found: it is known before the scan sees it. A pass that is
        under way may have gone by its key already."""
        if len(self._found) < MAX_FOUND:
            self._found.add(name)
            self._pass.add(name)

    def maintenance(self) -> Sequence[MaintenanceTask]:
        return [MaintenanceTask("scan for queues", _PERIOD_S, self._scan_when_due)]

    async def _scan_when_due(self) -> MaintenanceResult:
        """The larger the server, the rarer the passes."""
        if self._pause > 0:
            self._pause -= 1
            return MaintenanceResult(0)
        result = await self.scan()
        self._steps += 1
        if not result.more:
            self._pause, self._steps = min(_MAX_PAUSE, self._steps - 1), 0
        return result

    async def scan(self) -> MaintenanceResult:
        """One step; `more` until the pass has seen the whole key space."""
        before = len(self._found)
        pattern = f"{_escaped(self._head)}:*:{self._tail}"
        for _ in range(_CALLS):
            command = ("SCAN", self._cursor, "MATCH", pattern, "COUNT", _KEYS, "TYPE", "hash")
            with raises_unavailable():
                reply = await self._connection.call(*command)
            self._cursor, keys = cast("tuple[str, list[str]]", reply)
            for name in filter(None, map(self._name, keys)):
                if len(self._pass) < MAX_FOUND:
                    self._pass.add(name)
                    self._found.add(name)
            if self._cursor == "0":
                self._found, self._pass = self._pass, set()
                return MaintenanceResult(max(0, len(self._found) - before))
        return MaintenanceResult(max(0, len(self._found) - before), more=True)

    def _name(self, key: str) -> str:
        """The queue that a key belongs to; empty where it is of no queue."""
        name = key[len(self._head) + 1 : -len(self._tail) - 1]
        return name if is_queue_name(name) else ""


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
