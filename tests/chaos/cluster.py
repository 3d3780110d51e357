"""A Cluster under load: slots that move, replicas that are promoted, primaries that are killed.

`python -m tests.chaos cluster`: CHAOS_S is the length of each run, CHAOS_SEED repeats one. With
`moves`, slots move and replicas are promoted: nothing may be lost. With `kills` primaries die
besides; the checker is told when a failover may have lost writes (G-26), and what was lost is
counted. With `shards`, jobs are in shards over all nodes, gateways and workers die too, and the
number of shards is doubled under racing submissions.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from redis import ConnectionPool, RedisError

from jobwire.job.ids import shard_of
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.shard_settings import TAGS
from jobwire.valkey import Reply
from tests.chaos import faults
from tests.chaos.checker import check_history
from tests.chaos.fleet import Fleet, Seat
from tests.chaos.history import History, Period
from tests.chaos.inspector import Inspector, Place
from tests.chaos.load import Caller
from tests.chaos.plan import faults as planned
from tests.chaos.run import Outcome, collect, new_history
from tests.chaos.sentinel import now_ms, survived, under_load
from tests.support import Proxy, leaks, wait_until
from tests.support.cluster import Cluster
from tests.support.sentinel import Replicated
from tests.support.servers import Plain, plain_client


class Kind(NamedTuple):
    """The faults of a run, and its shards."""

    at_cluster: tuple[str, ...]
    at_programs: tuple[str, ...] = ()
    shards: int = 0
    """At the end; half as many at the begin. 0: all jobs are in one slot."""

    @property
    def tags(self) -> tuple[str, ...]:
        """The hash tag of each shard."""
        return TAGS[: self.shards] if self.shards else ("jobs",)


KINDS: Final = {
    "moves": Kind(("slot_moved", "slot_moved", "replica_promoted")),
    "kills": Kind(("slot_moved", "replica_promoted", "primary_killed")),
    "shards": Kind(
        ("slot_moved", "slot_moved", "replica_promoted", "primary_killed"),
        ("kill", "terminate"),
        shards=16,
    ),
}
_PROGRAM_PAUSE_S: Final = 3.0
"""Between two faults at programs."""
_DOUBLED_S: Final = 90.0
"""The reports of killed processes are waited for until they expire."""


class ClusterFleet(Fleet):
    """The programs know some nodes, and the prefix or the number of shards."""

    def __init__(self, folder: Path, history: History, cluster: Cluster, kind: Kind) -> None:
        super().__init__(folder, history)
        self.cluster = cluster
        self.settings["JOBWIRE_SYSTEMS"] = "jobs"
        if kind.shards:
            self.settings["JOBWIRE_JOBS_SHARDS"] = str(kind.shards // 2)
            self.settings["JOBWIRE_JOBS_SHARD_BY"] = "job"
        else:
            self.settings["JOBWIRE_JOBS_KEY_PREFIX"] = _keys(kind.tags[0]).prefix

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        with self.cluster:
            async with self._running_programs():
                yield

    def _seat(self, name: str, args: Sequence[str], slots: int = 0) -> Seat:
        return self._seat_at(name, args, slots, Proxy(1).start(), self.cluster.url)


class Following(Plain):
    """A client of another package that looks for the slot's node when it is refused. For one thread
    at a time: it closes the sockets to the former node."""

    servers: Cluster
    tag: str

    def call(self, *args: str | bytes | int | float) -> Reply:
        for _ in range(3):
            with contextlib.suppress(RedisError, OSError):
                return super().call(*args)
            self.look()
        return super().call(*args)

    def look(self) -> None:
        """Find the node that has the slot now."""
        try:
            found = _pool(self.servers, self.tag)
        except AssertionError as error:  # no node has it before a replica is promoted
            raise RedisError(str(error)) from error
        former, self.connection_pool = self.connection_pool, found
        former.disconnect()


def following(cluster: Cluster, tag: str) -> Following:
    """Such a client."""
    client = Following(connection_pool=_pool(cluster, tag))
    client.servers, client.tag = cluster, tag
    return client


def _pool(cluster: Cluster, tag: str) -> ConnectionPool:
    return plain_client(cluster.primary_of(tag)).connection_pool


def _keys(tag: str) -> StreamsKeys:
    return StreamsKeys(f"{{{tag}}}:")


async def moves(folder: Path, seed: int, seconds: float, name: str) -> Outcome:
    """One run with the faults of a kind."""
    kind = KINDS[name]
    history = new_history()
    cluster = Cluster(folder / "cluster")
    fleet = ClusterFleet(folder, history, cluster, kind)
    outcome = Outcome(seed, history)
    async with fleet.running():
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(following(cluster, tag)) for tag in kind.tags]
            places = [Place(*each) for each in zip(clients, map(_keys, kind.tags), strict=True)]
            inspector = Inspector(*places)
            await fleet.grow()
            nemesis = _trouble(fleet, outcome, seconds, kind)
            await under_load(fleet, inspector, outcome, nemesis, places=True)
            for client in clients:
                client.look()
            await collect(fleet, inspector, history)
        outcome.deaths = sum(seat.deaths for seat in fleet.seats)
        history.left_behind += await fleet.stop_programs()
        history.left_behind += await asyncio.to_thread(_leaks, cluster)
    outcome.survived = survived(history)
    outcome.violations = check_history(history)
    return outcome


def _leaks(cluster: Cluster) -> list[str]:
    """Keys without TTL, and connections that are still open (R-7)."""
    patterns = [f"*{pattern}" for pattern in leaks.permanent_patterns()]
    others = Counter({"": 1000})  # all of ours have names
    found: list[str] = []
    for primary in cluster.primaries:
        with plain_client(primary, leaks.OBSERVER) as plain:
            found += leaks.lasting_keys(plain, patterns)
            found += leaks.open_clients(plain, others)
    return found


async def _trouble(fleet: ClusterFleet, outcome: Outcome, seconds: float, kind: Kind) -> None:
    """All faults of the run, side by side; shards are doubled in the middle of it."""
    deadline_s = time.monotonic() + seconds
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_at_cluster(fleet, outcome, deadline_s, kind))
        tasks.create_task(_at_programs(fleet, outcome, deadline_s, kind))
        if kind.shards:
            await asyncio.sleep(seconds / 4)
            await _double(fleet, outcome, kind)


async def _at_cluster(fleet: ClusterFleet, outcome: Outcome, deadline_s: float, kind: Kind) -> None:
    random, cluster, history = Random(outcome.seed), fleet.cluster, outcome.history
    primaries, since_ms = await asyncio.to_thread(lambda: {*cluster.primaries}), now_ms()
    while time.monotonic() < deadline_s:
        await asyncio.sleep(random.uniform(0.5, 2.0))
        fault = random.choice(kind.at_cluster)
        outcome.faults[fault] += 1
        caused = await asyncio.to_thread(_cause, fault, cluster, kind.tags, history, random)
        expected = primaries - {caused.former} | {caused.next}
        primaries = await asyncio.to_thread(lambda: {*cluster.primaries})
        if primaries != expected:
            outcome.faults["unplanned_failover"] += 1
            everywhere = Period(since_ms, now_ms(), frozenset(range(len(kind.tags))))
            history.losses.append(everywhere)
            history.outages.append(everywhere)
        since_ms = now_ms()


class Caused(NamedTuple):
    """The primary that a fault has replaced, and its successor; the same one if it stayed."""

    former: Replicated
    next: Replicated


def _cause(
    fault: str, cluster: Cluster, tags: Sequence[str], history: History, random: Random
) -> Caused:
    tag = random.choice(tags)
    former = primary = cluster.primary_of(tag)
    if fault == "slot_moved":
        cluster.move_slot(tag, random.choice([p for p in cluster.primaries if p is not primary]))
    elif fault == "replica_promoted":
        primary = cluster.fail_over(former)
    else:
        at = cluster.tags_at(former, tags)
        shards = frozenset(number for number, each in enumerate(tags) if each in at)
        failed_ms = now_ms()
        history.losses.append(Period(failed_ms, failed_ms, shards))
        primary = cluster.kill(former)
        history.outages.append(Period(failed_ms, now_ms(), shards))
        time.sleep(random.uniform(0.0, 2.0))
        former.start()
    cluster.wait_complete()
    return Caused(former, primary)


async def _at_programs(
    fleet: ClusterFleet, outcome: Outcome, deadline_s: float, kind: Kind
) -> None:
    for fault in planned(outcome.seed, kind.at_programs):
        await asyncio.sleep(_PROGRAM_PAUSE_S)
        if time.monotonic() > deadline_s:
            break
        outcome.faults[fault.kind] += 1
        await faults.cause(fleet, fault)


async def _double(fleet: ClusterFleet, outcome: Outcome, kind: Kind) -> None:
    """G-5: restart all programs with twice the shards, one after the other, while many clients race
    with the same keys; then wait until all of the shards get jobs."""
    over = asyncio.Event()
    racer = Caller("racer", outcome.seed, fleet.ports, outcome.history)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(racer.race(over))
        fleet.settings["JOBWIRE_JOBS_SHARDS"] = str(kind.shards)
        await fleet.restart_all()
        with following(fleet.cluster, kind.tags[0]) as plain:

            def doubled() -> bool:
                with contextlib.suppress(RedisError, OSError):
                    tables = plain.call("HGET", _keys(kind.tags[0]).shards, "tables")
                    return str(tables).endswith(f"={','.join(map(str, range(kind.shards)))}")
                return False

            await wait_until(
                lambda: asyncio.to_thread(doubled), "the table of shards", timeout_s=_DOUBLED_S
            )

        def used() -> set[int]:
            return {shard_of(job_id) for _, job_id in outcome.history.answered_jobs}

        await wait_until(lambda: len(used()) == kind.shards, "all shards to get jobs")
        over.set()
    outcome.faults["shards_doubled"] += 1
