"""Housekeeping of the Streams wire, for every process of ours (J-41).

The engine hands these to whoever runs duties. Each is one bounded script a turn, guarded so that
the fleet does it once a period; cursors are carried from turn to turn. Nothing here loops.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, cast

from jobwire.job.engine import MaintenanceResult, MaintenanceTask
from jobwire.valkey import Arg, Connection, Reply
from jobwire.wires.streams import contract
from jobwire.wires.streams.contract import StreamsKeys
from jobwire.wires.streams.registration import Registration
from jobwire.wires.streams.replies import collect, wire_text
from jobwire.wires.streams.scripts import SCRIPTS
from jobwire.wires.streams.settings import StreamsSettings
from jobwire.wires.streams.settle_args import reclaim_terms, reconnected

_log = logging.getLogger("jobwire.streams")

_LOOK: Final = 100
_PROMOTE_S: Final = 0.1
_EXTEND_TTL_S: Final = 0.25
_INDEX_FOREIGN_S: Final = 1.0
_JANITOR_S: Final = 5.0
_CLOCK_S: Final = 1.0
_SILENT_S: Final = 3600.0
"""How long a consumer of ours must be silent before its name is removed."""
_GUARDED: Final = ["guarded"]


class StreamsMaintenance:
    def __init__(
        self,
        connection: Connection,
        settings: StreamsSettings,
        consumer: str,
        registration: Registration,
        nudge: Callable[[], Awaitable[None]],
    ) -> None:
        self._connection = connection
        self._settings = settings
        self._consumer = consumer
        self._registration = registration
        self._nudge = nudge
        self._declared = (StreamsKeys(settings.key_prefix).queue,)
        self._limits: tuple[Arg, ...] = (settings.job_ttl_s, settings.max_events)
        self._going_on: set[str] = set()
        self._reclaim_cursor = self._janitor_cursor = "-"
        self._index_foreign_cursor = self._clock_cursor = "-"
        self._reconcile_cursor = self._prune_cursor = "0"
        self._prune_tenant = ""

    def all(self) -> list[MaintenanceTask]:
        settings = self._settings
        duties = [
            MaintenanceTask("promote", _PROMOTE_S, self._promote),
            MaintenanceTask("extend_ttl", _EXTEND_TTL_S, self._extend_ttl),
            MaintenanceTask("index_foreign", _INDEX_FOREIGN_S, self._index_foreign),
            MaintenanceTask("clock", _CLOCK_S, self._clock),
            MaintenanceTask("reclaim", settings.lease_s / 4, self._reclaim),
            MaintenanceTask("janitor", _JANITOR_S, self._janitor),
            MaintenanceTask("reconcile", settings.lease_s, self._reconcile),
        ]
        if self._registration.is_filled:
            duties.append(MaintenanceTask("heartbeat", settings.heartbeat_s, self.heartbeat))
        return duties

    async def heartbeat(self) -> MaintenanceResult:
        """Write this worker's registration, unless it was withdrawn."""
        if self._registration.is_filled:
            self._registration.look()
            await self._run("heartbeat", self._registration.arguments())
            self._registration.written()
        return MaintenanceResult(1)

    # The fleet's

    async def _promote(self) -> MaintenanceResult:
        moved, more = cast("tuple[int, int]", await self._run("promote", [*self._limits, _LOOK]))
        return MaintenanceResult(moved, more == 1)

    async def _extend_ttl(self) -> MaintenanceResult | None:
        # Half of the shortest life is little more than a period: begin earlier.
        ahead_ms = round(2000 * _EXTEND_TTL_S)
        args = [*self._limits, self._consumer, ahead_ms, 5 * _LOOK]
        reply = await self._guarded("extend_ttl", _EXTEND_TTL_S, args)
        if reply is None:
            return None
        kept, more = cast("tuple[int, int]", reply)
        return self._turn("extend_ttl", kept, more == 1)

    async def _index_foreign(self) -> MaintenanceResult | None:
        args = [*self._limits, self._consumer, self._index_foreign_cursor, 5 * _LOOK]
        reply = await self._guarded("index_foreign", _INDEX_FOREIGN_S, args)
        if reply is None:
            return None
        self._index_foreign_cursor, found, more = cast("tuple[str, int, int]", reply)
        return self._turn("index_foreign", found, more == 1)

    async def _clock(self) -> MaintenanceResult | None:
        lease_ms = round(self._settings.lease_s * 1000)
        args = [self._consumer, lease_ms, contract.CLOCK_TTL_S * 1000, self._clock_cursor]
        reply = await self._guarded("clock", _CLOCK_S, [*args, 5 * _LOOK])
        if reply is None:
            return None
        self._clock_cursor, moved = cast("tuple[str, int]", reply)
        if moved:
            _log.warning("server clock was set back: %d leases begin anew", moved)
        return self._turn("clock", moved, self._clock_cursor != "-")

    async def _reclaim(self) -> MaintenanceResult | None:
        """What no worker of ours has come for within another lease goes back in line; one that
        waits with a free slot is woken a lease earlier, and takes it over where it stands."""
        settings = self._settings
        await self._nudge()
        terms = reclaim_terms(settings, late_s=settings.lease_s)
        args = [*self._limits, self._consumer, 0, "", *terms, self._reclaim_cursor, _LOOK]
        args.append(reconnected(self._connection, settings))
        reply = await self._guarded("reclaim", settings.lease_s / 4, args)
        if reply is None:
            return None
        self._reclaim_cursor, _, _, moved = cast("tuple[str, list[str], list[str], int]", reply)
        if moved:
            _log.warning("%d jobs of workers that fell silent went back in line", moved)
        return self._turn("reclaim", moved, self._reclaim_cursor != "-")

    async def _janitor(self) -> MaintenanceResult | None:
        args = [self._consumer, contract.CONSUMER_PREFIX, round(_SILENT_S * 1000)]
        reply = await self._guarded("janitor", _JANITOR_S, [*args, self._janitor_cursor, 2 * _LOOK])
        if reply is None:
            return None
        self._janitor_cursor, removed = cast("tuple[str, int]", reply)
        pruned = await self._prune()
        more = self._janitor_cursor != "-" or self._prune_cursor != "0"
        return self._turn("janitor", removed + pruned, more)

    async def _prune(self) -> int:
        args = [wire_text(self._prune_tenant), self._prune_cursor, 5 * _LOOK]
        reply = await self._run("prune", args)
        self._prune_cursor, pruned, self._prune_tenant = cast("tuple[str, int, str]", reply)
        return pruned

    async def _reconcile(self) -> MaintenanceResult | None:
        settings = self._settings
        _, lease_ms, foreign_ms, _, max_deliveries = reclaim_terms(settings, late_s=0.0)
        args = [*self._limits, self._consumer, lease_ms, foreign_ms, max_deliveries]
        reply = await self._guarded(
            "reconcile", settings.lease_s, [*args, self._reconcile_cursor, 2 * _LOOK]
        )
        if reply is None:
            return None
        self._reconcile_cursor, moved = cast("tuple[str, int]", reply)
        if moved:
            _log.warning("%d jobs had fallen out of the line and were put right", moved)
        return self._turn("reconcile", moved, self._reconcile_cursor != "0")

    def _turn(self, duty: str, done: int, more: bool) -> MaintenanceResult:
        # The rest of a round that we began is ours to do; only its beginning is guarded.
        (self._going_on.add if more else self._going_on.discard)(duty)
        return MaintenanceResult(done, more)

    async def _guarded(self, duty: str, period_s: float, args: Sequence[Arg]) -> Reply:
        period_ms = 0 if duty in self._going_on else max(1, round(period_s * 1000))
        reply = await self._run(duty, [*args, period_ms])
        return None if reply == _GUARDED else reply

    async def _run(self, name: str, args: Sequence[Arg]) -> Reply:
        (reply,) = await collect([self._connection.run(SCRIPTS[name], self._declared, args)])
        return reply
