"""Q-5: ten thousand event streams of ten thousand jobs on one gateway.

Memory of an idle stream, connections to the server, the time from a foreign worker's XADD to the
client at 2,000 events/s, and the CPU of the server (beyond the same events without streams). The
limits: 16 KiB, p99 50 ms, 12 µs per event.

Then as many streams open on one job: opening one may cost at most 1.5 times as much as on separate
jobs, so that the cost does not depend on the number of open streams.
"""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Final, cast

import httpx
import psutil

from bench.gateway import gateway_server
from bench.measure import cpu_s
from jobwire.local import LocalValkey
from jobwire.valkey import Config
from jobwire.valkey.blocking_socket import BlockingSocket

_WATCHERS: Final = 10_000
_SECONDS: Final = 6.0


def _submit(port: int) -> list[str]:
    """Submit jobs without a worker."""
    job = {"task": "chat", "payload": {"prompt": "hello"}, "ttl_s": 600}
    found: list[str] = []
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
        for _ in range(_WATCHERS // 1000):
            answer = client.post("/v1/jobs/batch", json={"jobs": [job] * 1000})
            found += [result["job_id"] for result in answer.json()["results"]]
    return found


def _write(url: str, job_ids: list[str]) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "bench.watchers_writer", url, str(_SECONDS)],
        input="\n".join(job_ids),
        capture_output=True,
        text=True,
        check=True,
    )
    return cast(int, json.loads(done.stdout)["sent"])


def _clients(url: str) -> int:
    admin = BlockingSocket(Config.from_url(url), "bench-admin", timeout_s=10)
    try:
        listed = cast(str, admin.call("CLIENT", "LIST"))
    finally:
        admin.close()
    return sum(" name=jobwire" in line for line in listed.splitlines())


def _open(port: int, job_ids: list[str]) -> subprocess.Popen[str]:
    """Open a stream per job in another process; returns when each has its first event."""
    client = subprocess.Popen(
        [sys.executable, "-m", "bench.watchers_client", str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    stdin, stdout = cast("IO[str]", client.stdin), cast("IO[str]", client.stdout)
    stdin.write("\n".join(job_ids) + "\n\n")
    stdin.flush()
    assert stdout.readline() == "open\n"
    return client


def _arrivals_us(valkey_url: str) -> float:
    """CPU of a new gateway per stream that opens on one job."""
    with gateway_server(valkey_url) as (pid, port):
        job_id = _submit(port)[0]
        began_s = cpu_s(pid)
        client = _open(port, [job_id] * _WATCHERS)
        used_us = (cpu_s(pid) - began_s) / _WATCHERS * 1e6
        client.communicate()
    return used_us


def run() -> bool:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < _WATCHERS + 500:
        print(f"needs {_WATCHERS + 500} open files, the limit is {hard}: ulimit -n")
        return False
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalValkey(Path(folder), admin=True) as valkey,
        gateway_server(valkey.url) as (pid, port),
    ):
        job_ids = _submit(port)
        server_s = cpu_s(valkey.pid)
        alone_us = _write(valkey.url, job_ids)
        alone_us = (cpu_s(valkey.pid) - server_s) / alone_us * 1e6

        before_bytes, began_s = psutil.Process(pid).memory_info().rss, cpu_s(pid)
        client = _open(port, job_ids)
        stdin, stdout = cast("IO[str]", client.stdin), cast("IO[str]", client.stdout)
        opened_us = (cpu_s(pid) - began_s) / _WATCHERS * 1e6
        kib = (psutil.Process(pid).memory_info().rss - before_bytes) / _WATCHERS / 1024
        connections = _clients(valkey.admin_url)

        server_s, gateway_s = cpu_s(valkey.pid), cpu_s(pid)
        sent = _write(valkey.url, job_ids)
        time.sleep(0.5)
        watched_us = (cpu_s(valkey.pid) - server_s) / sent * 1e6
        gateway_us = (cpu_s(pid) - gateway_s) / sent * 1e6
        stdin.close()
        delays_ms = sorted(1000 * delay for delay in cast("list[float]", json.loads(stdout.read())))
        client.wait()
        arrival_us = _arrivals_us(valkey.url)

    p50, p99 = (delays_ms[int(len(delays_ms) * share)] for share in (0.5, 0.99))
    cost_us = watched_us - alone_us
    print(
        f"{_WATCHERS} streams, {sent / _SECONDS:.0f} events/s, {len(delays_ms)} of {sent} received"
    )
    print(f"  memory of an idle stream  {kib:8.1f} KiB (bar 16), {opened_us:.0f} µs to open")
    print(f"  connections to the server {connections:8d}")
    print(f"  event to client           {p50:8.1f} ms p50, {p99:.1f} ms p99 (bar 50)")
    print(f"  server                    {cost_us:8.1f} µs per event over {alone_us:.1f} (bar 12)")
    print(f"  gateway                   {gateway_us:8.1f} µs per event")
    print(f"  slowest                   {statistics.fmean(delays_ms[-10:]):8.1f} ms")
    arrived_s = arrival_us * _WATCHERS / 1e6
    print(f"  opened, all on one job    {arrival_us:8.0f} µs each, {arrived_s:.1f} s together")
    linear = arrival_us <= 1.5 * opened_us
    return linear and kib <= 16 and p99 <= 50 and cost_us <= 12 and len(delays_ms) == sent
