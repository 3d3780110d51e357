"""From the start of a lone process to the recovery of what a dead one left, by maintenance task.

Each task has its default period. The dead process was killed at a random moment of that period, so
that the guard of its last run still holds for the rest. All rounds run side by side, and take about
two minutes.
"""

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from jobwire.job.engine import MaintenanceTask
from jobwire.job.messages import TaskDefinition
from jobwire.local import LocalValkey
from jobwire.maintenance import Maintenance
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.queues.codec import Took
from jobwire.systems.queues.consumer import BullConsumer
from jobwire.systems.queues.contract import Keys
from jobwire.systems.queues.engine import BullEngine
from jobwire.systems.queues.known_queues import KnownQueues
from jobwire.systems.queues.queue import QueueProducer
from jobwire.systems.queues.scripts import SCRIPTS
from jobwire.systems.queues.settings import BullSettings
from jobwire.systems.queues.worker_connections import WorkerConnections
from jobwire.valkey import Connection
from tests.support.streams import StreamsLab

_LOOK_S = 0.05
_Recovered = Callable[[], Awaitable[bool]]
_Tasks = Sequence[MaintenanceTask]


class _Round:
    """One dead process and one that starts, with keys of their own."""

    def __init__(self, connection: Connection, number: int) -> None:
        self._connection = connection
        self._prefix = f"r{number}:"
        self._name = f"q{number}"

    async def streams(self, task: str) -> float:
        call = self._connection.call
        lab = StreamsLab(
            self._connection, key_prefix=f"{self._prefix}{task}:", lease_s=30.0, foreign_idle_s=300
        )
        keys: StreamsKeys = lab.keys
        dead = await lab.worker()
        job_id = await lab.submit(delay_s=0.1 if task == "promote" else 0.0)
        recovered: _Recovered
        match task:
            case "promote":
                recovered = _is(lambda: call("ZCARD", keys.delayed), 0)
            case "extend_ttl":
                await call("ZADD", keys.open, 1, job_id)
                recovered = _is(lambda: call("ZCOUNT", keys.open, 0, 1), 0)
            case "index_foreign":
                await call("ZREM", keys.index(""), job_id)
                await call("HSET", keys.job("f"), "status", "queued", "ttl_s", 600)
                await call("XADD", keys.queue, "*", "job_id", "f", "task", "t", "payload", "{}")
                recovered = _is(lambda: call("ZCOUNT", keys.open, "-inf", "+inf"), 2)
            case "clock":
                ahead_ms = round(time.time() * 1000) + 3_600_000
                await call("SET", keys.clock, ahead_ms)
                recovered = _not(lambda: call("GET", keys.clock), str(ahead_ms))
            case "reclaim":
                await dead.take(1)
                await lab.silence(dead)
                recovered = _is(lambda: call("HGET", keys.job(job_id), "status"), "queued")
            case "janitor":
                await call("ZADD", keys.index(""), 1, "expired")
                recovered = _is(lambda: call("ZSCORE", keys.index(""), "expired"), None)
            case "reconcile":
                await call("XTRIM", keys.queue, "MAXLEN", 0)
                recovered = _is(lambda: call("XLEN", keys.queue), 1)
            case _:
                raise ValueError(task)
        alive = StreamsEngine(self._connection, lab.settings)
        tasks = [each for each in alive.maintenance() if each.name == task]
        left_ms = round(tasks[0].period_s * 1000 * random.random()) + 1
        if task != "promote":
            await call("SET", keys.guard(task), "dead", "PX", left_ms)
        return await _until(tasks, recovered)

    async def stalled(self, *, guarded: bool) -> float:
        """The job of a worker that died long ago; its lock is gone."""
        name = self._name + ("g" if guarded else "")
        settings, keys = BullSettings(announce=False), Keys(name)
        await QueueProducer(self._connection, name, settings).submit("t", "{}")
        dead = BullConsumer(self._connection, name, settings)
        took = await dead.take("dead:1")
        assert isinstance(took, Took), took
        await self._connection.call("DEL", keys.lock(took.job.id))
        if guarded:
            left_ms = round(30_000 * random.random()) + 1
            await self._connection.call("SET", keys.stalled_check, "1", "PX", left_ms)
        engine = BullEngine(WorkerConnections(self._connection, settings), name)
        await engine.register([TaskDefinition("t")], slots=1)
        recovered = _is(lambda: self._connection.call("LLEN", keys.active), 0)
        return await _until(engine.maintenance(), recovered)

    async def found(self) -> float:
        """A queue that a gateway does not know yet."""
        name = f"found{self._name}"
        await QueueProducer(self._connection, name, BullSettings()).submit("t", "{}")
        known = KnownQueues(self._connection, BullSettings().prefix)

        async def is_found() -> bool:
            return name in known.names

        return await _until(known.maintenance(), is_found)


def _is(read: Callable[[], Awaitable[object]], wanted: object) -> _Recovered:
    async def recovered() -> bool:
        return await read() == wanted

    return recovered


def _not(read: Callable[[], Awaitable[object]], before: object) -> _Recovered:
    async def recovered() -> bool:
        return await read() != before

    return recovered


async def _until(tasks: _Tasks, recovered: _Recovered) -> float:
    began_s = time.monotonic()
    async with Maintenance(tasks).running():
        while not await recovered():
            await asyncio.sleep(_LOOK_S)
    return time.monotonic() - began_s


async def _measure(url: str, rounds: int) -> None:
    connection = await Connection.open(url, name="recovery")
    await connection.load_scripts(SCRIPTS.values())
    numbers = range(rounds)
    streams = ("promote", "extend_ttl", "index_foreign", "clock", "reclaim", "janitor", "reconcile")
    cases: dict[str, list[Awaitable[float]]] = {
        task: [_Round(connection, number).streams(task) for number in numbers] for task in streams
    }
    cases["stalled check, no guard"] = [
        _Round(connection, number).stalled(guarded=False) for number in numbers
    ]
    cases["stalled check"] = [
        _Round(connection, number).stalled(guarded=True) for number in numbers
    ]
    cases["scan for queues"] = [_Round(connection, number).found() for number in numbers]
    found = await asyncio.gather(*(asyncio.gather(*each) for each in cases.values()))
    for name, times in zip(cases, found, strict=True):
        middle, longest = statistics.median(times), max(times)
        print(f"{name:<24} median {middle:5.1f} s, longest {longest:5.1f} s", flush=True)
    await connection.close()


def run(*options: str) -> bool:
    parser = argparse.ArgumentParser(prog="python -m bench recovery", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds: int = parser.parse_args(options).rounds
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalValkey(Path(folder) / "valkey", admin=True) as server,
    ):
        asyncio.run(_measure(server.url, rounds))
    return True
