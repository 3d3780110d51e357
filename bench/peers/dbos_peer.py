"""Workflows of many steps in DBOS: what a step costs the process that runs it.

python -m bench.peers.dbos_peer DATABASE_URL JOBS STEPS    prints CPU of a step

It runs in an environment of its own, which has `dbos`.
"""

import asyncio
import importlib
import json
import logging
import sys
import time
from typing import Any


async def main(url: str, jobs: int, steps: int) -> None:
    dbos: Any = importlib.import_module("dbos").DBOS
    dbos(config={"name": "bench", "system_database_url": url, "run_admin_server": False})

    @dbos.step()
    async def one(number: int) -> int:
        return number

    @dbos.workflow()
    async def durable(count: int) -> None:
        for number in range(count):
            await one(number)

    dbos.launch()
    logging.getLogger("dbos").setLevel(logging.ERROR)
    costs = list[float]()
    for count in (0, steps):
        cpu_s = time.process_time()
        handles = [await dbos.start_workflow_async(durable, count) for _ in range(jobs)]
        for handle in handles:
            await handle.get_result()
        costs.append(time.process_time() - cpu_s)
    dbos.destroy()
    print(json.dumps({"client_us": (costs[1] - costs[0]) * 1e6 / (jobs * steps)}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
