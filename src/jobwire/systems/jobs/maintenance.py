"""Maintenance tasks of the Streams wire, for every process of ours (J-41).

The engine returns them to the maintenance loop. Each run of a task is one bounded script, guarded
so that the fleet runs it once per period; cursors are kept from run to run. Nothing here loops.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Final, cast

from jobwire.job.engine import MaintenanceResult, MaintenanceTask
from jobwire.systems.jobs import contract
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.own_registration import OwnRegistration
from jobwire.systems.jobs.replies import collect, pairs, server_ms
from jobwire.systems.jobs.scripts import SCRIPTS
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.systems.jobs.settle_args import reclaim_terms, reconnected
from jobwire.valkey import Arg, Connection, Reply

_log = logging.getLogger("jobwire.streams")

_SCAN_LIMIT: Final = 100
_PROMOTE_S: Final = 1.0
"""Bounds the delay of jobs that another process has put off, and then died."""
_EXTEND_TTL_S: Final = 0.25
_INDEX_FOREIGN_S: Final = 1.0
_JANITOR_S: Final = 5.0
_FORGET_TASKS_S: Final = 3600.0
_CONSUMER_IDLE_S: Final = 3600.0
"""How long a consumer of ours must be idle before it is removed."""
_GUARDED: Final = "guarded"
_ALWAYS_CALLED: Final = frozenset({"extend_ttl", "reclaim"})
"""Without a look at their guard: `extend_ttl` knows that something is due, `reclaim` notes each
call."""
_MAX_CURSORS: Final = 1_000
_PRUNE_LIMIT: Final = 5 * _SCAN_LIMIT
_PRUNE_RATE: Final = 500.0
"""Jobs of an index that are looked at in a second, on average."""


class _GuardHolds(Exception):
    """Some process has done the task in this period."""

    def __init__(self, left_ms: int) -> None:
        super().__init__()
        self.left_s = left_ms / 1000


class StreamsMaintenance:
    def __init__(
        self,
        connection: Connection,
        settings: StreamsSettings,
        consumer: str,
        registration: OwnRegistration,
        wake_idle: Callable[[], Awaitable[None]],
        pause: Callable[[Collection[str]], None],
    ) -> None:
        """`pause` is called with the names of all paused queues at each heartbeat."""
        self.promote_soon = asyncio.Event()
        """Set when this process has put a job off."""
        self._pause = pause
        self._connection = connection
        self._settings = settings
        self._consumer = consumer
        self._registration = registration
        self._wake_idle = wake_idle
        keys = StreamsKeys(settings.key_prefix)
        self._open, self._waiting = keys.open, (keys.delayed, keys.suspended)
        self._guard = keys.guard
        self._declared = (keys.queue,)
        self._limits: tuple[Arg, ...] = (settings.job_ttl_s, settings.max_events)
        self._unfinished: set[str] = set()
        self._cursors: dict[str, dict[str, str]] = {}
        """Task → the queues that a round has not finished, and their cursors."""
        self._indexed: dict[str, str] = {}
        """Queue → the last entry that was looked at."""
        self._reconcile_cursor = self._prune_cursor = self._tasks_cursor = "0"
        self._prune_tenant = ""
        self._server_ahead_ms = math.inf
        """The server's clock less our own, as last read; infinite: everything is due."""
        self._prune_at_s = 0.0
        """When the next index may be read, on our own clock."""
        self._prune_calls = 0

    def all(self) -> list[MaintenanceTask]:
        settings = self._settings
        guarded = {
            "extend_ttl": (_EXTEND_TTL_S, self._extend_ttl),
            "index_foreign": (_INDEX_FOREIGN_S, self._index_foreign),
            "clock": (settings.lease_s / 6, self._clock),
            "reclaim": (settings.lease_s / 4, self._reclaim),
            "janitor": (_JANITOR_S, self._janitor),
            "reconcile": (settings.lease_s, self._reconcile),
            "forget_tasks": (_FORGET_TASKS_S, self._forget_tasks),
        }
        tasks = [MaintenanceTask("promote", _PROMOTE_S, self._promote, self.promote_soon)]
        for name, (period_s, run) in guarded.items():
            task = partial(self._once_per_period, period_s, run)
            tasks.append(MaintenanceTask(name, period_s, task))
        if self._registration.is_filled:
            tasks.append(MaintenanceTask("heartbeat", settings.heartbeat_s, self.heartbeat))
        return tasks

    async def heartbeat(self) -> MaintenanceResult:
        """Write this worker's registration, unless it was withdrawn."""
        if self._registration.is_filled:
            self._registration.check_requirements()
            reply = await self._run("heartbeat", self._registration.arguments())
            self._registration.written()
            self._pause(cast("list[str]", reply)[1:])
        return MaintenanceResult(1)

    # Once per period for the whole fleet

    async def _promote(self) -> MaintenanceResult:
        reads = [self._first_of(key) for key in self._waiting]
        delayed, suspended, now = await collect([*reads, self._connection.call("TIME")])
        self._server_ahead_ms = server_ms(now) - _own_ms()
        in_ms = min(_score(delayed), _score(suspended)) - server_ms(now)
        if in_ms > 0:
            return MaintenanceResult(0, next_s=None if in_ms == math.inf else in_ms / 1000)
        reply = await self._run("promote", [*self._limits, _SCAN_LIMIT])
        moved, more = cast("tuple[int, int]", reply)
        return MaintenanceResult(moved, more == 1, next_s=0.0)  # look again: others may be near

    async def _extend_ttl(self, period_s: float) -> MaintenanceResult | None:
        # Half of the shortest lifetime is little more than a period: begin earlier.
        ahead_ms = round(2000 * _EXTEND_TTL_S)
        if "extend_ttl" not in self._unfinished:
            (first,) = await collect([self._first_of(self._open)])
            if _score(first) > _own_ms() + self._server_ahead_ms + ahead_ms:
                return None
        args = [*self._limits, self._consumer, ahead_ms, 5 * _SCAN_LIMIT]
        reply = await self._guarded("extend_ttl", period_s, args)
        extended, more = cast("tuple[int, int]", reply)
        return self._result("extend_ttl", extended, more == 1)

    def _first_of(self, key: str) -> Awaitable[Reply]:
        """The first of a set of jobs. A plain command: most often nothing is due, and a script
        costs an idle fleet many times more."""
        return self._connection.call("ZRANGE", key, 0, 0, "WITHSCORES")

    async def _index_foreign(self, period_s: float) -> MaintenanceResult:
        args = [*self._limits, self._consumer, 5 * _SCAN_LIMIT]
        if len(self._indexed) > _MAX_CURSORS:
            self._indexed.clear()  # queues come and go: begin again
        cursors = [text for pair in self._indexed.items() for text in pair]
        reply = await self._guarded("index_foreign", period_s, args, cursors)
        flat, found, more = cast("tuple[list[str], int, int]", reply)
        self._indexed.update(pairs(flat))
        return self._result("index_foreign", found, more == 1)

    async def _clock(self, period_s: float) -> MaintenanceResult:
        lease_ms = round(self._settings.lease_s * 1000)
        args = [self._consumer, lease_ms, contract.CLOCK_TTL_S * 1000, 5 * _SCAN_LIMIT]
        reply = await self._guarded("clock", period_s, args, self._unfinished_queues("clock"))
        cursors, moved = cast("tuple[list[str], int]", reply)
        if moved:
            _log.warning(
                "server clock was set back leases=%(leases)s; restarted", {"leases": moved}
            )
        return self._queues_result("clock", moved, cursors)

    async def _reclaim(self, period_s: float) -> MaintenanceResult:
        """Requeue jobs that no worker of ours has reclaimed within another lease. A worker that
        waits with a free slot is woken one lease earlier, and reclaims them itself."""
        settings = self._settings
        await self._wake_idle()
        terms = reclaim_terms(settings, late_s=settings.lease_s)
        args = [*self._limits, self._consumer, 0, "", *terms, _SCAN_LIMIT]
        args.append(reconnected(self._connection, settings))
        rest = ["first", *self._unfinished_queues("reclaim")]
        reply = await self._guarded("reclaim", period_s, args, rest)
        cursors, _, _, moved = cast("tuple[list[str], list[str], list[str], int]", reply)
        if moved:
            _log.warning("leases expired jobs=%(jobs)s; requeued or ended", {"jobs": moved})
        return self._queues_result("reclaim", moved, cursors)

    async def _janitor(self, period_s: float) -> MaintenanceResult:
        args = [self._consumer, contract.CONSUMER_PREFIX, round(_CONSUMER_IDLE_S * 1000)]
        args.append(2 * _SCAN_LIMIT)
        reply = await self._guarded("janitor", period_s, args, self._unfinished_queues("janitor"))
        cursors, removed = cast("tuple[list[str], int]", reply)
        pruned = await self._prune()
        result = self._queues_result("janitor", removed + pruned, cursors)
        return self._result("janitor", result.done, result.more or self._prune_cursor != "0")

    async def _prune(self) -> int:
        """Remove expired jobs from an index. A large index is read less often: many jobs that wait
        or are kept for long cost an idle fleet little (D-10)."""
        if self._prune_cursor == "0" and time.monotonic() < self._prune_at_s:
            return 0
        args = [self._prune_tenant, self._prune_cursor, _PRUNE_LIMIT]
        reply = await self._run("prune", args)
        self._prune_cursor, pruned, self._prune_tenant = cast("tuple[str, int, str]", reply)
        if self._prune_cursor == "0":
            self._prune_at_s = time.monotonic() + self._prune_calls * _PRUNE_LIMIT / _PRUNE_RATE
            self._prune_calls = 0
        else:
            self._prune_calls += 1
        return pruned

    async def _reconcile(self, period_s: float) -> MaintenanceResult:
        settings = self._settings
        _, lease_ms, foreign_ms, _, max_deliveries = reclaim_terms(settings, late_s=0.0)
        args = [*self._limits, self._consumer, lease_ms, foreign_ms, max_deliveries]
        reply = await self._guarded(
            "reconcile", period_s, [*args, self._reconcile_cursor, 2 * _SCAN_LIMIT]
        )
        self._reconcile_cursor, moved = cast("tuple[str, int]", reply)
        if moved:
            _log.warning(
                "jobs without a queue entry jobs=%(jobs)s; requeued or ended", {"jobs": moved}
            )
        return self._result("reconcile", moved, self._reconcile_cursor != "0")

    async def _forget_tasks(self, period_s: float) -> MaintenanceResult:
        args = [self._consumer, contract.TASK_MEMORY_S * 1000, self._tasks_cursor, _SCAN_LIMIT]
        reply = await self._guarded("forget_tasks", period_s, args)
        self._tasks_cursor, removed = cast("tuple[str, int]", reply)
        return self._result("forget_tasks", removed, self._tasks_cursor != "0")

    def _result(self, task: str, done: int, more: bool) -> MaintenanceResult:
        # This process finishes a round that it began; only the beginning of a round is guarded.
        (self._unfinished.add if more else self._unfinished.discard)(task)
        return MaintenanceResult(done, more)

    def _unfinished_queues(self, task: str) -> list[str]:
        """Arguments of a script: queues and their cursors."""
        return [text for pair in self._cursors.get(task, {}).items() for text in pair]

    def _queues_result(self, task: str, done: int, cursors: Sequence[str]) -> MaintenanceResult:
        found = pairs(cursors)
        self._cursors[task] = {queue: cursor for queue, cursor in found.items() if cursor != "-"}
        return self._result(task, done, bool(self._cursors[task]))

    async def _once_per_period(
        self, period_s: float, run: Callable[[float], Awaitable[MaintenanceResult | None]]
    ) -> MaintenanceResult | None:
        try:
            result = await run(period_s)
        except _GuardHolds as guard:
            return MaintenanceResult(0, guard_s=guard.left_s)
        return result and result._replace(guard_s=period_s)

    async def _guarded(
        self, task: str, period_s: float, args: Sequence[Arg], rest: Sequence[Arg] = ()
    ) -> Reply:
        """Run the script of a task, or raise _GuardHolds; `rest` are its arguments behind the
        period."""
        period_ms = 0 if task in self._unfinished else max(1, round(period_s * 1000))
        if period_ms and task not in _ALWAYS_CALLED:
            (left_ms,) = await collect([self._connection.call("PTTL", self._guard(task))])
            if 0 < cast("int", left_ms) <= period_ms:
                # The script would say so, too, at many times the cost.
                raise _GuardHolds(cast("int", left_ms))
        reply = cast("list[Reply]", await self._run(task, [*args, period_ms, *rest]))
        if reply[0] == _GUARDED:
            raise _GuardHolds(cast("int", reply[1]))
        return reply

    async def _run(self, name: str, args: Sequence[Arg]) -> Reply:
        (reply,) = await collect([self._connection.run(SCRIPTS[name], self._declared, args)])
        return reply


def _score(rows: Reply) -> float:
    """When the first of a set of jobs is due, in ms of the server's clock; infinite without one."""
    return cast("list[tuple[str, float]]", rows)[0][1] if rows else math.inf


def _own_ms() -> float:
    return time.monotonic() * 1000
