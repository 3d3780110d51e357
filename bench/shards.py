"""16 shards beside one: CPU of a job, of client and servers, on one server and on a Cluster of
three primaries with a replica each; then what an idle worker and an idle gateway cost (G-6).

Both of a pair run on the same servers, interleaved; medians of the rounds. `--idle` measures only
the second part.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench.measure import Row, cpu_s, in_process, medians
from jobwire.local import LocalValkey, free_port
from tests.support import Program
from tests.support.cluster import Cluster
from tests.support.servers import plain_client

_SHARDS: Final = 16
_ROUNDS: Final = 3
_JOBS: Final = 20_000
_SETTLE_S: Final = 8.0
_IDLE_S: Final = 20.0
_LOAD_BAR: Final = 1.1
_IDLE_BAR: Final = 0.01
_SOCKET_BAR: Final = 20
_NO_LOG: Final = "appendonly no"


class Servers(NamedTuple):
    name: str
    url: str
    primaries: Sequence[LocalValkey]


def run(*options: str) -> bool:
    parser = argparse.ArgumentParser(prog="python -m bench shards", description=__doc__)
    parser.add_argument("--idle", action="store_true", help="only what idle programs cost")
    only_idle: bool = parser.parse_args(options).idle
    met = True
    with tempfile.TemporaryDirectory() as folder:
        with LocalValkey(Path(folder) / "one", admin=True, extra=[_NO_LOG]) as server:
            met &= _measure(Servers("one server", server.url, [server]), only_idle)
        with Cluster(Path(folder) / "cluster", extra=[_NO_LOG]) as cluster:
            met &= _measure(Servers("Cluster", cluster.url, cluster.primaries), only_idle)
    return met


def _measure(servers: Servers, only_idle: bool) -> bool:
    met = only_idle or _load(servers)
    alone = _share_of_a_core(_pids(servers))
    share, sockets = 0.0, 0
    for shards in (0, _SHARDS):
        share, sockets = _idle(servers, shards)
        share -= alone  # servers without any client are not our cost
        print(
            f"{servers.name}, {shards or 'no'} shards, idle gateway and worker: "
            f"{share:.2%} of a core, {sockets} sockets"
        )
    is_small = share <= _IDLE_BAR and sockets <= _SOCKET_BAR
    print(f"  at most {_IDLE_BAR:.0%} and {_SOCKET_BAR}: {'yes' if is_small else 'NO'}")
    return met and is_small


def _load(servers: Servers) -> bool:
    rows: dict[int, list[Row]] = {0: [], _SHARDS: []}
    pids = ",".join(map(str, _pids(servers)))
    for _ in range(_ROUNDS):
        for shards, found in rows.items():
            _empty(servers)
            words = (servers.url, pids, str(_JOBS), str(shards), _prefix(shards))
            found.append(in_process("bench.peers.shards_peer", *words))
    one, many = (medians(found) for found in rows.values())
    met = True
    for side in ("client", "server"):
        costs = [(row[f"submit_{side}_us"], row[f"work_{side}_us"]) for row in (one, many)]
        ratio = sum(costs[1]) / sum(costs[0])
        met &= ratio <= _LOAD_BAR
        shown = " against ".join(f"{submit:.1f} + {work:.1f}" for submit, work in costs[::-1])
        print(f"{servers.name}, a job of {_SHARDS} shards, {side}: {shown} µs, {ratio:.2f} ×")
    print(f"  both at most {_LOAD_BAR} ×: {'yes' if met else 'NO'}")
    return met


def _prefix(shards: int) -> str:
    return "" if shards else "{jobs}:"


def _idle(servers: Servers, shards: int) -> tuple[float, int]:
    """The share of a core of two programs and the primaries together, and the programs' sockets."""
    _empty(servers)
    before = _sockets(servers)
    with tempfile.TemporaryDirectory() as folder:
        env = {
            "JOBWIRE_VALKEY_URL": servers.url,
            "JOBWIRE_DATA_DIR": folder,
            "JOBWIRE_JOBS_SHARDS": str(shards),
            "JOBWIRE_JOBS_KEY_PREFIX": _prefix(shards),
            "JOBWIRE_SYSTEMS": "jobs",
        }
        port = str(free_port())
        with (
            Program("-m", "jobwire", "gateway", "--port", port, env=env) as gateway,
            Program("-m", "jobwire", "worker", "tests.fleet.app:app", env=env) as worker,
        ):
            gateway.wait_for_line("gateway on")
            worker.wait_for_line("worker with")
            time.sleep(_SETTLE_S)
            share = _share_of_a_core([gateway.pid, worker.pid, *_pids(servers)])
            return share, _sockets(servers) - before


def _share_of_a_core(pids: Sequence[int]) -> float:
    before_s = sum(map(cpu_s, pids))
    time.sleep(_IDLE_S)
    return (sum(map(cpu_s, pids)) - before_s) / _IDLE_S


def _pids(servers: Servers) -> list[int]:
    return [server.pid for server in servers.primaries]


def _empty(servers: Servers) -> None:
    for server in servers.primaries:
        with plain_client(server) as plain:
            plain.call("FLUSHALL", "SYNC")


def _sockets(servers: Servers) -> int:
    count = 0
    for server in servers.primaries:
        with plain_client(server) as plain:
            count += len(str(plain.call("CLIENT", "LIST", "TYPE", "NORMAL")).splitlines())
    return count
