"""Adds jobs to a BullMQ queue: `… URL SERVER_PID MODE JOBS KIND`.

MODE is `add` (a hundred callers, one without an event loop) or `bulk` (a hundred jobs in a call).
KIND is `ours`, `sync` or `python`: BullMQ's own package, with the packages of its own folder.
"""

import importlib
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from bench.peers.clocks import Phase, by_100_callers

_BULK = 100
_OPTIONS = {"attempts": 3}


async def _measured(
    server_pid: int,
    mode: str,
    jobs: int,
    add: Callable[[Any], Awaitable[object]],
    add_many: Callable[[list[dict[str, Any]]], Awaitable[object]],
) -> None:
    phase = Phase(server_pid)
    if mode == "add":
        await by_100_callers(jobs, lambda number: add({"n": number}))
    else:
        for first in range(0, jobs, _BULK):
            await add_many([_job(number) for number in range(first, first + _BULK)])
    print(json.dumps(phase.done(jobs)))


def _job(number: int) -> dict[str, Any]:
    return {"name": "noop", "data": {"n": number}, "opts": dict(_OPTIONS)}


async def ours(url: str, server_pid: int, mode: str, jobs: int) -> None:
    from jobwire import BullQueue

    async with BullQueue("bench", url) as queue:
        await _measured(
            server_pid, mode, jobs, lambda data: queue.add("noop", data, _OPTIONS), queue.add_many
        )


def sync(url: str, server_pid: int, mode: str, jobs: int) -> None:
    from jobwire import SyncBullQueue

    with SyncBullQueue("bench", url) as queue:
        phase = Phase(server_pid)
        if mode == "add":
            for number in range(jobs):
                queue.add("noop", {"n": number}, _OPTIONS)
        else:
            for first in range(0, jobs, _BULK):
                queue.add_many([_job(number) for number in range(first, first + _BULK)])
        print(json.dumps(phase.done(jobs)))


async def python(url: str, server_pid: int, mode: str, jobs: int) -> None:
    bullmq = importlib.import_module("bullmq")  # by name: not installed for tests
    queue = bullmq.Queue("bench", {"connection": url.replace("valkey:", "redis:")})
    await _measured(
        server_pid, mode, jobs, lambda data: queue.add("noop", data, dict(_OPTIONS)), queue.addBulk
    )
    await queue.close()


if __name__ == "__main__":
    arguments = (sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    if sys.argv[5] == "sync":
        sync(*arguments)
    else:
        uvloop.run((ours if sys.argv[5] == "ours" else python)(*arguments))
