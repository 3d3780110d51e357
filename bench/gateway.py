"""Q-4: CPU of `POST /v1/jobs` with the whole contract, of a job in a batch, and of an empty route
of the same server; an empty FastAPI route measures the speed of the machine.

The limits: a post at most 1.7 times the empty route, and at most 90/97 of FastAPI's empty one; a
job of a batch at most 20/97 of that.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Final

from bench.measure import Row, cpu_s, in_process, medians
from jobwire.local import LocalValkey
from jobwire.valkey import Config
from jobwire.valkey.blocking_socket import BlockingSocket

_ROUNDS: Final = 9
_SECONDS: Final = 0.8
_CONNECTIONS: Final = 64
_BATCH: Final = 100
_FASTAPI_US: Final = 97.0
"""Cost of an empty FastAPI route on the machine of the limits."""

_JOB: Final = {
    "task": "chat",
    "payload": {
        "messages": [{"role": "user", "content": "Tell me a story about a fox and a crow. " * 3}],
        "temperature": 0.7,
        "max_tokens": 256,
    },
    "ttl_s": 600,
}
_ONE: Final = json.dumps(_JOB)
_MANY: Final = json.dumps({"jobs": [_JOB] * _BATCH})


@contextlib.contextmanager
def _server(module: str, argument: str) -> Generator[tuple[int, int]]:
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listening:
        process = subprocess.Popen(
            [sys.executable, "-m", module, argument, str(listening.fileno())],
            pass_fds=[listening.fileno()],
            stderr=subprocess.DEVNULL,
        )
        try:
            yield process.pid, listening.getsockname()[1]
        finally:
            process.kill()
            process.wait()


def gateway_server(url: str) -> contextlib.AbstractContextManager[tuple[int, int]]:
    """A gateway with jobs: its pid and port."""
    return _server("bench.gateway_server", url)


def _post(pid: int, port: int, path: str, body: str, connections: int) -> float:
    """CPU µs of the server per request."""
    load = [str(port), path, body, str(connections), str(_SECONDS)]
    before_s = cpu_s(pid)
    responses = in_process("bench.gateway_load", *load)["responses"]
    return (cpu_s(pid) - before_s) / responses * 1e6


def _get(pid: int, port: int) -> float:
    load = [str(port), "/empty", str(_CONNECTIONS), str(_SECONDS)]
    before_s = cpu_s(pid)
    responses = in_process("bench.http_load", *load)["responses"]
    return (cpu_s(pid) - before_s) / responses * 1e6


def run() -> bool:
    rows: list[Row] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalValkey(Path(folder), admin=True) as valkey,
        gateway_server(valkey.url) as (pid, port),
        _server("bench.http_server", "fastapi") as (fastapi_pid, fastapi_port),
    ):
        _pin(pid, fastapi_pid, others=(os.getpid(), valkey.pid))
        for _ in range(1 + _ROUNDS):
            row = {
                "empty": _post(pid, port, "/empty", _ONE, _CONNECTIONS),
                "post": _post(pid, port, "/v1/jobs", _ONE, _CONNECTIONS),
                "batch": _post(pid, port, "/v1/jobs/batch", _MANY, 4) / _BATCH,
                "fastapi": _get(fastapi_pid, fastapi_port),
            }
            rows.append({**row, "ratio": row["post"] / row["empty"]})
            _flush(valkey)
    found = medians(rows[1:])  # the first round warms up
    print(f"{'gateway µs of CPU':<34}")
    print(f"{'  POST /v1/jobs, whole contract':<34} {found['post']:>8.1f}")
    print(f"{'  a job of a batch of ' + str(_BATCH):<34} {found['batch']:>8.1f}")
    print(f"{'  empty route, the same server':<34} {found['empty']:>8.1f}")
    print(f"{'  empty route of FastAPI':<34} {found['fastapi']:>8.1f}")
    ratio = found["ratio"]
    scale = found["fastapi"] / _FASTAPI_US
    print(f"post / empty: {ratio:.2f} (bar 1.70)")
    print(
        f"at the speed at which FastAPI takes {_FASTAPI_US:.0f}: post {found['post'] / scale:.1f} "
        f"(bar 90), batch {found['batch'] / scale:.1f} (bar 20)"
    )
    return ratio <= 1.7 and found["post"] <= 90 * scale and found["batch"] <= 20 * scale


def _pin(*measured: int, others: tuple[int, ...]) -> None:
    """Pin the measured processes to one core and the others to the other cores."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        for pid in measured:
            os.sched_setaffinity(pid, cores[:1])
        for pid in others:
            os.sched_setaffinity(pid, cores[1:])


def _flush(valkey: LocalValkey) -> None:
    """Empty the server, so that every round starts equal."""
    admin = BlockingSocket(Config.from_url(valkey.admin_url), "bench", timeout_s=10)
    admin.call("FLUSHALL")
    admin.close()
