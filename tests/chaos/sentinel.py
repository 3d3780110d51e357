"""Failovers by Sentinel under load: the primary is killed or paused, again and again.

`python -m tests.chaos sentinel`: CHAOS_S is the length, CHAOS_SEED repeats a run. The checker is
that of all runs; it is told when a failover may have lost writes (G-26). What was acknowledged is
counted, and how much of it the surviving server does not have. Queues and images are under load,
too.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import AsyncGenerator, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final, cast

from redis import RedisError
from redis.sentinel import Sentinel

from jobwire.local.valkey import ADMIN
from tests.chaos.checker import Violation, check_history, r19_reports_are_whole
from tests.chaos.fleet import Fleet, Seat
from tests.chaos.history import TERMINAL, History, Period, Watch
from tests.chaos.inspector import Inspector, Place
from tests.chaos.load import Caller, seen_by
from tests.chaos.other_systems import OtherSystems
from tests.chaos.run import CALLERS, QUIET_S, Outcome, Survival, collect, new_history, until_settled
from tests.support import Proxy, wait_until_sync
from tests.support.sentinel import ADMIN_PASSWORD, NAME, SENTINEL_PASSWORD, Replicated, Trio
from tests.support.servers import Plain, plain_client

LEVELS: Final = {"memory": "appendfsync everysec", "disk": "appendfsync always"}


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
    history = new_history()
    trio = Trio(folder / "trio", [LEVELS[level]])
    fleet = SentinelFleet(folder, history, trio)
    fleet.settings["JOBWIRE_JOBS_DURABILITY"] = level
    outcome = Outcome(seed, history)
    others = OtherSystems(folder, trio)
    async with fleet.running():
        with following(trio) as plain:
            inspector = Inspector(Place(plain))
            await fleet.grow()
            async with _in_thread(others.under_load()):
                await under_load(fleet, inspector, outcome, _fail_over(trio, outcome, seconds))
            await collect(fleet, inspector, history)
        outcome.deaths = sum(seat.deaths for seat in fleet.seats)
        history.left_behind += await fleet.stop_programs()
    outcome.survived = [*survived(history), *others.survived]
    outcome.violations += [Violation("R2", what) for what in others.unfinished]
    outcome.violations += [
        Violation("G22", f"{answer.about} was accepted at {answer.durability!r}, not {level}")
        for answer in history.answers
        if answer.verb == "submit" and answer.job_id and answer.durability != level
    ]
    outcome.violations += check_history(history)
    return outcome


@contextlib.asynccontextmanager
async def _in_thread(context: contextlib.AbstractContextManager[object]) -> AsyncGenerator[None]:
    """A context whose begin and end block."""
    await asyncio.to_thread(context.__enter__)
    try:
        yield
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)


async def under_load(
    fleet: Fleet,
    inspector: Inspector,
    outcome: Outcome,
    nemesis: Coroutine[None, None, None],
    *,
    places: bool = False,
) -> None:
    """Submit, cancel and watch jobs during the faults, then wait until all jobs have ended.
    `places`: check meanwhile that every open job has one (R7)."""
    history, over, quiet = outcome.history, asyncio.Event(), asyncio.Event()
    callers = [
        Caller(f"caller{number}", outcome.seed, fleet.ports, history) for number in range(CALLERS)
    ]
    async with asyncio.TaskGroup() as tasks:
        if places:
            tasks.create_task(inspector.watch_places(history, quiet))
        calling = [tasks.create_task(caller.go_on(over)) for caller in callers]
        await nemesis
        over.set()
        healed_s = time.monotonic()
        await until_settled(inspector)
        if any(not task.done() for task in calling):
            await asyncio.wait(calling, timeout=QUIET_S / 3)
        await until_settled(inspector)
        outcome.quiet_after_s = time.monotonic() - healed_s
        for task in calling:
            task.cancel()
        quiet.set()
    history.watches += [seen_by(watcher) for caller in callers for watcher in caller.watchers]


async def _fail_over(trio: Trio, outcome: Outcome, seconds: float) -> None:
    """Kill or pause the primary; a paused one wakes up and finds that it is none any more."""
    random, history = Random(outcome.seed), outcome.history
    known, since_ms = trio.failovers, now_ms()
    deadline_s = time.monotonic() + seconds
    for number in itertools.count(outcome.seed):
        await asyncio.sleep(random.uniform(0.5, 2.0))
        if time.monotonic() > deadline_s:
            break
        if trio.failovers > known:
            _note_unplanned(outcome, since_ms)
        known, former, failed_ms = trio.failovers, trio.primary, now_ms()
        history.losses.append(Period(failed_ms, failed_ms))
        outcome.faults["primary_killed" if number % 2 else "primary_paused"] += 1
        former.kill() if number % 2 else former.pause()
        successor = await asyncio.to_thread(trio.wait_failover, former)
        await asyncio.to_thread(_wait_writable, successor, writable=True)
        history.outages.append(Period(failed_ms, now_ms()))
        await asyncio.sleep(random.uniform(0.0, 2.0))
        if number % 2:
            await asyncio.to_thread(trio.restart, former)
        else:
            resumed_ms = now_ms()
            former.resume()
            # It answers those who have not left it, until it finds that no replica follows it.
            await asyncio.to_thread(_wait_writable, former, writable=False)
            history.losses.append(Period(resumed_ms, now_ms()))
        await asyncio.to_thread(trio.wait_complete)
        if trio.failovers > known + 1:
            _note_unplanned(outcome, failed_ms)
        known, since_ms = trio.failovers, now_ms()


def _wait_writable(server: Replicated, *, writable: bool) -> None:
    """Wait until a server accepts writes, or refuses them: it is a replica, or has none."""

    def answered() -> bool:
        with contextlib.suppress(RedisError, OSError), plain_client(server) as plain:
            found = cast("dict[str, object]", plain.info("replication"))
            accepts = found["role"] == "master" and bool(found.get("min_slaves_good_slaves"))
            return accepts == writable
        return False

    wait_until_sync(answered, f"writable to be {writable}", timeout_s=30)


def _note_unplanned(outcome: Outcome, since_ms: float) -> None:
    """A primary that lives was replaced: it may have answered writes until it knew."""
    outcome.faults["unplanned_failover"] += 1
    outcome.history.losses.append(Period(since_ms, now_ms()))
    outcome.history.outages.append(Period(since_ms, now_ms()))


def now_ms() -> float:
    return time.time() * 1000


def survived(history: History) -> list[Survival]:
    """What clients and handlers were told, and what of it the surviving history does not have."""
    jobs = history.jobs
    gone = {job for job in history.accepted.values() if job not in jobs}
    events = {job_id: {event.id for event in job.events} for job_id, job in jobs.items()}
    ends = [watch for watch in history.watches if watch.ended and watch.seen]
    states = [answer for answer in history.answers if answer.state in TERMINAL]
    cancels = [
        answer for answer in history.answers if answer.verb == "cancel" and answer.status == 200
    ]
    begun = Counter(run.job_id for run in history.runs)
    lost_starts = 0
    for job_id, count in begun.items():
        job = jobs.get(job_id)
        kept = sum(event.type == "running" for event in job.events) if job else 0
        lost_starts += max(0, count - kept)
    cut = [watch for watch in history.watches if not _is_known(watch, history)]
    return [
        Survival("accepted jobs", len(history.accepted), len(gone)),
        Survival("starts", len(history.runs), lost_starts),
        Survival(
            "terminal events seen by watchers",
            len(ends),
            sum(watch.seen[-1] not in events.get(watch.job_id, ()) for watch in ends),
        ),
        Survival(
            "ends in responses",
            len(states),
            sum(_status(history, answer.job_id) != answer.state for answer in states),
        ),
        Survival(
            "cancels answered with 200",
            len(cancels),
            sum(_status(history, answer.about) != "canceled" for answer in cancels),
        ),
        Survival("watchers, lost: with a gap or lost events", len(history.watches), len(cut)),
        Survival(
            "runs, lost: some of their reports",
            len(history.runs),
            len(list(r19_reports_are_whole(replace(history, losses=[])))),
        ),
    ]


def _status(history: History, job_id: str) -> str:
    job = history.jobs.get(job_id)
    return job.status if job else ""


def _is_known(watch: Watch, history: History) -> bool:
    """Whether a watcher saw no gap, and nothing that the surviving history does not have."""
    job = history.jobs.get(watch.job_id)
    return job is not None and set(watch.seen) <= {event.id for event in job.events}
