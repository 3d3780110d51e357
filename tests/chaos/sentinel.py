"""Failovers by Sentinel under load: the primary is killed or paused, again and again.

`python -m tests.chaos sentinel`: CHAOS_S is the length, CHAOS_SEED repeats a run. The checker is
that of all runs. What a failover may lose (G-26) is counted and not judged: jobs that are gone, and
watchers that got a `gap` or had seen events that no replica had, and starts and reports of runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from random import Random
from typing import Final, cast

from redis.sentinel import Sentinel

from jobwire.local.valkey import ADMIN
from tests.chaos.checker import check_history
from tests.chaos.fleet import LEASE_S, MAX_DELIVERIES, Fleet, Seat
from tests.chaos.history import History, Watch
from tests.chaos.inspector import Inspector
from tests.chaos.load import Caller, seen_by
from tests.chaos.run import CALLERS, QUIET_S, Outcome, collect, until_settled
from tests.support import Proxy
from tests.support.sentinel import ADMIN_PASSWORD, NAME, SENTINEL_PASSWORD, Trio
from tests.support.servers import Plain

LEVELS: Final = {"memory": "appendfsync everysec", "disk": "appendfsync always"}

OF_LOST_WRITES: Final = frozenset({"R8", "R19", "R20"})
"""They compare what handlers did with the starts and reports that the server has: a failover that
loses one (G-26) breaks them."""


class SentinelFleet(Fleet):
    """The programs know only the sentinels."""

    def __init__(self, folder: Path, history: History, trio: Trio) -> None:
        super().__init__(folder, history)
        self.trio = trio

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        with self.trio:
            async with self._running_programs():
                yield

    def _seat(self, name: str, args: Sequence[str], slots: int = 0) -> Seat:
        return self._seat_at(name, args, slots, Proxy(1).start(), self.trio.url)


def following(trio: Trio) -> Plain:
    """A client of another package that follows the primary."""
    sentinels = Sentinel(
        [("127.0.0.1", port) for port in trio.ports],
        sentinel_kwargs={"password": SENTINEL_PASSWORD, "socket_timeout": 1},
        username=ADMIN,
        password=ADMIN_PASSWORD,
        decode_responses=True,
        socket_timeout=5,
    )
    return cast("Plain", sentinels.master_for(NAME, redis_class=Plain))


async def failovers(folder: Path, seed: int, seconds: float, level: str) -> Outcome:
    """One run at one level of durability."""
    history = History(max_deliveries=MAX_DELIVERIES, lease_ms=1000 * LEASE_S)
    trio = Trio(folder / "trio", [LEVELS[level]])
    fleet = SentinelFleet(folder, history, trio)
    outcome = Outcome(seed, history)
    async with fleet.running():
        with following(trio) as plain:
            inspector = Inspector(plain)
            await fleet.grow()
            await _under_load(fleet, inspector, outcome, seconds)
            await collect(fleet, inspector, history)
        outcome.deaths = sum(seat.deaths for seat in fleet.seats)
        history.left_behind += await fleet.stop_programs()
    _forget_lost(outcome)
    for violation in check_history(history):
        if violation.rule in OF_LOST_WRITES:
            outcome.survived[f"lost writes by {violation.rule}"] += 1
        else:
            outcome.violations.append(violation)
    return outcome


async def _under_load(
    fleet: SentinelFleet, inspector: Inspector, outcome: Outcome, seconds: float
) -> None:
    history, over = outcome.history, asyncio.Event()
    callers = [
        Caller(f"caller{number}", outcome.seed, fleet.ports, history) for number in range(CALLERS)
    ]
    async with asyncio.TaskGroup() as tasks:
        calling = [tasks.create_task(caller.go_on(over)) for caller in callers]
        await _fail_over(fleet.trio, outcome, seconds)
        over.set()
        healed_s = time.monotonic()
        await until_settled(inspector)
        if any(not task.done() for task in calling):
            await asyncio.wait(calling, timeout=QUIET_S / 3)
        await until_settled(inspector)
        outcome.quiet_after_s = time.monotonic() - healed_s
        for task in calling:
            task.cancel()
    history.watches += [seen_by(watcher) for caller in callers for watcher in caller.watchers]


async def _fail_over(trio: Trio, outcome: Outcome, seconds: float) -> None:
    """Kill or pause the primary; a paused one wakes up and finds that it is none any more."""
    random = Random(outcome.seed)
    deadline_s = time.monotonic() + seconds
    while time.monotonic() < deadline_s:
        await asyncio.sleep(random.uniform(0.5, 2.0))
        former = trio.primary
        # Every program may seem late to the others while there is no server.
        outcome.history.worker_faults.append(time.time() * 1000)
        if random.random() < 0.5:
            outcome.faults["primary_killed"] += 1
            former.kill()
            await asyncio.to_thread(trio.wait_failover, former)
            await asyncio.sleep(random.uniform(0.0, 2.0))
            await asyncio.to_thread(trio.restart, former)
        else:
            outcome.faults["primary_paused"] += 1
            former.pause()
            await asyncio.to_thread(trio.wait_failover, former)
            await asyncio.sleep(random.uniform(0.0, 2.0))
            former.resume()
        await asyncio.to_thread(trio.wait_complete)
        outcome.history.worker_faults.append(time.time() * 1000)


def _forget_lost(outcome: Outcome) -> None:
    """G-26: a submission that no replica had is gone, and so are events; the checker is to look at
    the rest."""
    history = outcome.history
    lost = {job for job in history.accepted.values() if job not in history.jobs}
    cut = [watch for watch in history.watches if watch.gaps or not _is_known(watch, history)]
    outcome.survived = Counter(
        accepted=len(history.accepted), lost=len(lost), watchers_with_lost_events=len(cut)
    )
    history.answers = [
        answer
        for answer in history.answers
        if answer.job_id not in lost and answer.about not in lost
    ]
    history.runs = [run for run in history.runs if run.job_id not in lost]
    history.watches = [
        watch for watch in history.watches if watch.job_id not in lost and watch not in cut
    ]


def _is_known(watch: Watch, history: History) -> bool:
    """Whether the surviving history has all that a watcher saw."""
    job = history.jobs.get(watch.job_id)
    return job is not None and set(watch.seen) <= {event.id for event in job.events}
