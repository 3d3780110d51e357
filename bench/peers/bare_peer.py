"""The minimal loop: one script per step of the contract on our connection, without leases, retries,
cancellation, fencing or typed values. The cost of a whole worker is compared with it."""

import asyncio
import itertools
import sys
import time
import uuid
from typing import Final, cast

import uvloop

from bench.peers.clocks import Phase, latency, throughput
from jobwire.valkey import Connection, Script

_SUBMIT: Final = Script(
    "bare_submit",
    "",
    """
local job, events = 'job:' .. ARGV[1], 'job:' .. ARGV[1] .. ':events'
redis.call('HSET', job, 'job_id', ARGV[1], 'task', ARGV[2], 'payload', ARGV[3], 'status', 'queued',
  'created_ts', ARGV[4], 'updated_ts', ARGV[4], 'ttl_s', '86400', 'result', '', 'error', '')
redis.call('EXPIRE', job, 86400)
redis.call('XADD', events, '*', 'type', 'queued', 'ts', ARGV[4],
  'step', 'gateway.enqueue', 'data', '{}')
redis.call('EXPIRE', events, 86400)
redis.call('XADD', KEYS[1], '*', 'job_id', ARGV[1], 'task', ARGV[2], 'payload', ARGV[3])
return 1
""",
    (),
    (),
    (),
    (),
)
_START: Final = Script(
    "bare_start",
    "",
    """
local job, events = 'job:' .. ARGV[1], 'job:' .. ARGV[1] .. ':events'
redis.call('HSET', job, 'status', 'running', 'updated_ts', ARGV[2])
redis.call('EXPIRE', job, 86400)
redis.call('XADD', events, '*', 'type', 'running', 'ts', ARGV[2], 'step', 'worker', 'data', '{}')
redis.call('EXPIRE', events, 86400)
return 1
""",
    (),
    (),
    (),
    (),
)
_SETTLE: Final = Script(
    "bare_settle",
    "",
    """
local job, events = 'job:' .. ARGV[1], 'job:' .. ARGV[1] .. ':events'
redis.call('HSET', job, 'status', 'done', 'updated_ts', ARGV[2], 'result', ARGV[3])
redis.call('EXPIRE', job, 86400)
redis.call('XADD', events, '*', 'type', 'done', 'ts', ARGV[2], 'step', 'worker', 'data', '{}')
redis.call('EXPIRE', events, 86400)
redis.call('XACK', KEYS[1], 'workers', ARGV[4])
redis.call('XDEL', KEYS[1], ARGV[4])
return 1
""",
    (),
    (),
    (),
    (),
)
_QUEUE: Final = ("jobs:stream",)
Entries = dict[str, list[tuple[str, list[str]]]]


def _now() -> str:
    return str(time.time_ns() // 1_000_000)


async def submit(connection: Connection, payload: str) -> None:
    await connection.run(_SUBMIT, _QUEUE, (str(uuid.uuid4()), "noop", payload, _now()))


async def work(connection: Connection, jobs: int, waits_s: list[float]) -> None:
    """100 jobs in flight: read as many as are free, start, do nothing, settle."""
    await connection.call("XGROUP", "CREATE", _QUEUE[0], "workers", "0", "MKSTREAM")
    free = asyncio.Semaphore(100)
    left = jobs

    async def handle(entry: str, flat: list[str]) -> None:
        nonlocal left
        job_id, payload = flat[1], flat[5]
        await connection.run(_START, _QUEUE, (job_id, _now()))
        if payload[2:4] == "at":
            waits_s.append(time.perf_counter() - float(payload[6:-1]))
        await connection.run(_SETTLE, _QUEUE, (job_id, _now(), "null", entry))
        left -= 1
        free.release()

    async with asyncio.TaskGroup() as group, connection.socket() as own:
        while left:
            await free.acquire()
            count = 1
            while count < 100 and not free.locked():
                await free.acquire()
                count += 1
            reply = await own.call(
                *("XREADGROUP", "GROUP", "workers", "bare", "COUNT", count, "BLOCK", 100),
                *("STREAMS", _QUEUE[0], ">"),
                block_s=0.1,
            )
            rows = [row for rows in (cast("Entries | None", reply) or {}).values() for row in rows]
            for entry, flat in rows:
                group.create_task(handle(entry, flat))
            for _ in range(count - len(rows)):
                free.release()


async def main(url: str, server_pid: int, mode: str, jobs: int) -> None:
    async with Connection.open(url, scripts=[_SUBMIT, _START, _SETTLE]) as connection:
        waits_s: list[float] = []
        if mode == "latency":
            working = asyncio.create_task(work(connection, jobs, waits_s))
            await asyncio.sleep(0.1)
            for _ in range(jobs):
                await submit(connection, f'{{"at":{time.perf_counter()}}}')
                await asyncio.sleep(0.01)
            await working
            latency(waits_s)
            return
        numbers = itertools.count()
        phase = Phase(server_pid)

        async def many() -> None:
            while (number := next(numbers)) < jobs:
                await submit(connection, f'{{"n":{number}}}')

        await asyncio.gather(*(many() for _ in range(100)))
        submitted = phase.done(jobs)
        phase = Phase(server_pid)
        await work(connection, jobs, waits_s)
        throughput(submitted, phase.done(jobs))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
