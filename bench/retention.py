"""Memory of the server while jobs are submitted at a steady rate and kept for a minute (G-0, L-8).

After `jobs.keep_done` has passed, as many jobs expire as are submitted: the memory must stay where
it is. Every fifth job has an idempotency key, which lives twice as long. `--seconds` is the length
of the run, `--rate` the number of jobs a second, `--keep` how long they are kept.
"""

import argparse
import asyncio
import json
import re
import tempfile
import time
from pathlib import Path

from jobwire.job.messages import JobRequest
from jobwire.local import LocalValkey
from jobwire.systems.jobs.queue import StreamsQueue
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection
from tests.support import Program

_BAR = 1.1
"""How much more memory the second half of the run may need at its end than at its begin."""
_SAMPLE_S = 15.0


def run(*options: str) -> bool:
    parser = argparse.ArgumentParser(prog="python -m bench retention", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--rate", type=int, default=100)
    parser.add_argument("--keep", type=int, default=60)
    given = parser.parse_args(options)
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalValkey(Path(folder) / "valkey") as server,
    ):
        env = {
            "JOBWIRE_VALKEY_URL": server.url,
            "JOBWIRE_DATA_DIR": folder,
            "JOBWIRE_JOBS_KEEP_DONE": f"{given.keep}s",
            "JOBWIRE_WORKER_DEFAULT_QUEUE": "true",
            "JOBWIRE_LOGGING_LEVEL": "warning",
        }
        with Program("-m", "jobwire", "worker", "tests.fleet.app:app", env=env) as worker:
            worker.wait_for_line("worker with", timeout_s=60)
            return asyncio.run(_load(server.url, given.seconds, given.rate, given.keep))


async def _load(url: str, seconds: float, rate: int, keep_s: int) -> bool:
    samples: list[tuple[float, int]] = []
    began_s = time.monotonic()
    async with Connection.open(url) as connection:
        queue = StreamsQueue(connection, StreamsSettings())
        payload = json.dumps({"text": "x" * 80})
        count = 0
        next_sample_s = 0.0
        while (now_s := time.monotonic() - began_s) < seconds:
            due = int(now_s * rate) - count
            requests = [
                JobRequest(
                    "echo",
                    payload,
                    ttl_s=2 * keep_s,
                    idempotency_key="" if number % 5 else f"key-{number}",
                )
                for number in range(count, count + due)
            ]
            count += due
            await queue.submit_many(requests)
            if now_s >= next_sample_s:
                next_sample_s += _SAMPLE_S
                samples.append((now_s, await _show(connection, now_s, count)))
            await asyncio.sleep(0.05)
        samples.append((seconds, await _show(connection, seconds, count)))
    half = [used for at_s, used in samples if at_s >= seconds / 2]
    ratio = half[-1] / half[0]
    print(f"{count} jobs; end of the second half / its begin: {ratio:.3f} (bar {_BAR})")
    return ratio <= _BAR


async def _show(connection: Connection, now_s: float, count: int) -> int:
    memory = str(await connection.call("INFO", "memory"))
    keys = str(await connection.call("DBSIZE"))
    index = str(await connection.call("ZCARD", "jobs:index"))
    found = re.search(r"^used_memory:(\d+)", memory, re.MULTILINE)
    used = int(found[1]) if found else 0
    print(
        f"{now_s:6.0f} s: {count:7} jobs, {used / 2**20:7.2f} MiB, {keys} keys,"
        f" {index} in the index",
        flush=True,
    )
    return used
