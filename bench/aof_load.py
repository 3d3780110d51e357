"""`python -m bench.aof_load url server_pid callers seconds file`: submit jobs, record the
accepted ones and print the rate; ends after the time, or with its server."""

import asyncio
import json
import os
import sys
import time
from typing import Final

import psutil
import uvloop

from bench.measure import cpu_s
from jobwire.job.errors import BackendUnavailable
from jobwire.job.messages import JobRequest, Submitted
from jobwire.systems.jobs.queue import StreamsQueue
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection, ValkeyError

_PAYLOAD: Final = json.dumps({"prompt": "x" * 80})


async def main(url: str, server_pid: int, callers: int, seconds: float, file: str) -> None:
    accepted = os.open(file, os.O_WRONLY | os.O_APPEND)
    count = 0
    deadline_s = time.monotonic() + seconds
    async with Connection.open(url) as connection:
        queue = StreamsQueue(connection, StreamsSettings(max_queue=10**7))

        async def submit() -> None:
            nonlocal count
            while time.monotonic() < deadline_s:
                answer = await queue.submit(JobRequest("chat", _PAYLOAD))
                assert isinstance(answer, Submitted)
                os.write(accepted, f"{answer.job_id}\n".encode())
                count += 1

        began_s, began_cpu_s = time.monotonic(), cpu_s(server_pid)
        try:
            await asyncio.gather(*(submit() for _ in range(callers)))
        except (BackendUnavailable, ValkeyError):
            return  # the server was killed, as intended
        took_s = time.monotonic() - began_s
        try:
            server_us = 1e6 * (cpu_s(server_pid) - began_cpu_s) / max(count, 1)
        except psutil.NoSuchProcess:
            return
    print(json.dumps({"per_s": count / took_s, "server_us": server_us}))


if __name__ == "__main__":
    _, url, pid, callers, seconds, file = sys.argv
    uvloop.run(main(url, int(pid), int(callers), float(seconds), file))
