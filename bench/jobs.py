"""Client and server CPU of one no-op job with the whole contract, jobs/s of one worker, and latency
under light load, compared with the minimal loop and other job queues (Q-1, Q-2).

All run on one server, interleaved; medians of the rounds. The server has one core, the measured
program the other. The peers are installed below `.venv-peers`, each in its own folder, since they
need different versions of the same packages. The limits are ratios of CPU; rate and latency are
printed only, since machines are noisy. Takes about three minutes.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, cast

from bench.measure import Row, medians
from jobwire.local.valkey import LocalValkey
from jobwire.valkey import Connection
from tests.support.thirdparty import NODE, node_packages

ROOT: Final = Path(__file__).parents[1]
PEERS: Final = ROOT / ".venv-peers"
HERE: Final = Path(__file__).parent / "peers"

_ROUNDS: Final = 3
_LIGHT: Final = 200
_MANY: Final = 20_000
"""Node is fastest when warm."""
_FEW: Final = 2_000
"""Enough for the CPU per job of the slower peers."""

OURS: Final = "jobwire"
BARE: Final = "minimal loop"
NODE_PEER: Final = "bullmq (Node)"
_PACKAGES: Final[dict[str, list[str]]] = {
    "arq": ["arq==0.28.0", "hiredis", "uvloop"],
    "saq": ["saq[hiredis]==0.26.4", "typing_extensions", "uvloop"],
    "taskiq": ["taskiq==0.13.0", "taskiq-redis==1.2.4", "hiredis", "uvloop"],
    "bullmq": ["bullmq==3.4.4", "hiredis", "uvloop"],
    "huey": ["huey==3.5.4", "redis", "hiredis"],
    "dramatiq": ["dramatiq[redis]==2.2.1", "hiredis"],
}
"""With what saq imports and does not declare."""
NODE_COMMAND: Final = [str(NODE), str(HERE / "bullmq_peer.mjs")]
_COMMANDS: Final[dict[str, list[str]]] = {
    OURS: [sys.executable, "-m", "bench.peers.jobwire_peer"],
    BARE: [sys.executable, "-m", "bench.peers.bare_peer"],
    NODE_PEER: NODE_COMMAND,
    **{name: [sys.executable, "-m", f"bench.peers.{name}_peer"] for name in _PACKAGES},
}
_BEST_OF: Final = ("arq", "saq", "taskiq", "bullmq")
_BARS: Final = {BARE: 3.0, NODE_PEER: 1 / 2, "huey": 1 / 5, "dramatiq": 1 / 5}
"""Our client CPU as a fraction of theirs; for the best of `_BEST_OF`: 1/10."""
_SERVER_BAR: Final = 0.7
_RATE_BAR: Final = 1.3


def install() -> None:
    """Install the peers once, each in its own folder."""
    if (PEERS / "ready").exists():
        return
    print("installing the peers (once) ...", flush=True)
    shutil.rmtree(PEERS, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for name, packages in _PACKAGES.items():
        _run([*pip, "--target", str(PEERS / name), *packages])
    (PEERS / "ready").touch()


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True)


def measure(peer: str, server: LocalValkey, mode: str, jobs: int) -> Row:
    """Run one peer on its own core."""
    return measure_command(_COMMANDS[peer], server, mode, jobs, **_path(peer))


def measure_command(
    command: Sequence[str], server: LocalValkey, mode: str, jobs: int, *more: str, **env: str
) -> Row:
    """Run a program that measures itself on its own core, on an empty server."""
    asyncio.run(_flush(server.admin_url))
    done = subprocess.run(
        [*command, server.admin_url, str(server.pid), mode, str(jobs), *more],
        cwd=ROOT,
        env={**os.environ, "PEERS": str(node_packages()), **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        preexec_fn=_pin_to_last_core,
    )
    if done.returncode:
        raise RuntimeError(f"{command[-1]} {mode} failed:\n{done.stderr[-2000:]}")
    return cast("dict[str, float]", json.loads(done.stdout.strip().splitlines()[-1]))


def _path(peer: str) -> dict[str, str]:
    return {"PYTHONPATH": str(PEERS / peer)} if peer in _PACKAGES else {}


async def _flush(url: str) -> None:
    async with Connection.open(url) as connection:
        await connection.call("FLUSHALL", "SYNC")
        await connection.call("SCRIPT", "FLUSH")


def _pin_to_last_core() -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def run() -> bool:
    install()
    work: dict[str, list[Row]] = {peer: [] for peer in _COMMANDS}
    light: dict[str, list[Row]] = {peer: [] for peer in _COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        server = LocalValkey(folder, admin=True, extra=["appendonly no"])
        with server:
            os.sched_setaffinity(server.pid, {min(os.sched_getaffinity(0))})
            for _ in range(_ROUNDS):
                for peer in _COMMANDS:
                    jobs = _FEW if peer in _PACKAGES else _MANY
                    work[peer].append(measure(peer, server, "throughput", jobs))
                    light[peer].append(measure(peer, server, "latency", _LIGHT))
    return _report(
        {p: medians(r) for p, r in work.items()}, {p: medians(r) for p, r in light.items()}
    )


def _report(work: dict[str, dict[str, float]], light: dict[str, dict[str, float]]) -> bool:
    print("no-op jobs, 100 callers, 100 slots; CPU µs per job; submit + work = total")
    print(f"{'':<14} {'client':>22} {'server':>22} {'jobs/s':>8} {'p50 ms':>8} {'p99 ms':>8}")
    client = {p: row["submit_client_us"] + row["work_client_us"] for p, row in work.items()}
    server = {p: row["submit_server_us"] + row["work_server_us"] for p, row in work.items()}
    for peer, row in work.items():
        print(
            f"{peer:<14}"
            f" {row['submit_client_us']:>6.1f} +{row['work_client_us']:>6.1f} ={client[peer]:>6.1f}"
            f" {row['submit_server_us']:>6.1f} +{row['work_server_us']:>6.1f} ={server[peer]:>6.1f}"
            f" {row['work_per_s']:>8.0f}"
            f" {light[peer]['p50_ms']:>8.2f} {light[peer]['p99_ms']:>8.2f}"
        )
    best = min(_BEST_OF, key=lambda peer: client[peer])
    met = True
    for peer, bar in {**_BARS, best: 1 / 10}.items():
        ratio = client[OURS] / client[peer]
        met &= ratio <= bar
        print(f"client CPU: {ratio:.3f} x {peer}'s{_verdict(bar, ratio <= bar)}")
    ratio = server[OURS] / server[NODE_PEER]
    met &= ratio <= _SERVER_BAR
    print(f"server CPU: {ratio:.2f} x Node's{_verdict(_SERVER_BAR, ratio <= _SERVER_BAR)}")
    rate = work[OURS]["work_per_s"] / work[NODE_PEER]["work_per_s"]
    print(f"jobs/s: {rate:.2f} x Node's{_verdict(_RATE_BAR, rate >= _RATE_BAR)}")
    return met


def _verdict(bar: float, met: bool) -> str:
    return f" (bar {bar:g}{'' if met else ', NOT MET'})"
