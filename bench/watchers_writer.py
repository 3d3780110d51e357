"""A foreign worker that only knows XADD and EXPIRE: `python -m bench.watchers_writer URL SECONDS`.

Reads job ids from stdin. Writes `_RATE` events per second to random jobs, each with its send time;
prints the count.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable
from typing import Final

import uvloop

from jobwire.valkey import Connection

_RATE: Final = 2_000
_TICK_S: Final = 0.005


async def main(url: str, seconds: float) -> None:
    job_ids = sys.stdin.read().split()
    async with Connection.open(url, name="bench-writer") as connection:
        began_s = time.monotonic()
        sent = 0
        while (now_s := time.monotonic()) < began_s + seconds:
            calls: list[Awaitable[object]] = []
            while sent < (now_s - began_s) * _RATE:
                key = f"job:{random.choice(job_ids)}:events"
                data = f'{{"text":"a little more","sent":{time.monotonic():.6f}}}'
                fields = ("type", "log", "ts", "1", "step", "bench", "data", data)
                calls += (connection.call("XADD", key, "*", *fields),)
                calls += (connection.call("EXPIRE", key, 600),)
                sent += 1
            await asyncio.gather(*calls)
            await asyncio.sleep(_TICK_S)
    print(json.dumps({"sent": sent}))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], float(sys.argv[2])))
