"""The cost of a recorded step (D-22): one round trip, CPU of the client and of the server.

100 jobs of 100 steps each, less the same jobs without steps; three rounds, medians. And one job at
a time, where nothing is written together, beside a lone call of an empty script. And 100,000
suspended jobs: what they cost a fleet that is idle (JOBS_SUSPENDED, and over how many seconds:
SUSPENDED_S), and whether all submissions were accepted. Bars of times are for an idle machine; the
number of calls and the submissions decide.

With DBOS_PYTHON, an interpreter that has the package `dbos`, DBOS runs the same in the same rounds,
on SQLite or on DBOS_DATABASE.
"""

import os
import tempfile
from typing import Final

from bench.measure import in_process, medians
from jobwire.local.valkey import LocalValkey

_PEER: Final = "bench.peers.durable_peer"
_ROUND_TRIP: Final = "bench.peers.round_trip_peer"
_SUSPENDED: Final = "bench.peers.suspended_peer"
_DBOS: Final = "bench.peers.dbos_peer"
_ROUNDS: Final = 3
_BARS: Final = {"client_us": 25.0, "server_us": 20.0}
"""With 100 jobs at a time; a job alone is measured in empty scripts of the same run."""


def run() -> bool:
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalValkey(folder, admin=True, extra=["appendonly no"]) as server,
    ):
        url = server.admin_url
        rounds = [
            (
                in_process(_PEER, url, "100", "100"),
                in_process(_PEER, url, "1", "900"),
                in_process(_ROUND_TRIP, url, "3000"),
                _dbos(f"sqlite:///{folder}/dbos-{number}", "10", "20"),
                _dbos(f"sqlite:///{folder}/dbos-{number}-alone", "1", "200"),
            )
            for number in range(_ROUNDS)
        ]
    together, alone, bare, *others = map(medians, zip(*rounds, strict=True))
    print(f"load average of the last minute: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for name, found in (("100 jobs at a time", together), ("one job", alone)):
        parts = [
            f"{found[each]:5.1f} µs {each.partition('_')[0]}"
            + (f" (bar {_BARS[each]:g})" if found is together else "")
            for each in _BARS
        ]
        print(f"{name:20}", *parts, f"{found['calls']:.2f} calls a step")
    print(
        f"{'an empty script':20} {bare['client_us']:5.1f} µs client, {bare['minimal_us']:.1f} with "
        f"a minimal protocol, {bare['server_us']:.1f} µs server"
    )
    client, server = (alone[each] / bare[each] for each in _BARS)
    print(f"one job is {client:.1f} (bar 1.8) and {server:.1f} (bar 12) empty scripts")
    for name, found in zip(("DBOS, 10 at a time", "DBOS, one workflow"), others, strict=True):
        if found:
            print(f"{name:20} {found['client_us']:5.0f} µs client")
    return _suspended() and alone["calls"] < 1.05


def _dbos(url: str, jobs: str, steps: str) -> dict[str, float]:
    """Empty where there is no DBOS."""
    python = os.environ.get("DBOS_PYTHON")
    if not python:
        return {}
    return in_process(_DBOS, os.environ.get("DBOS_DATABASE", url), jobs, steps, python=python)


def _suspended() -> bool:
    count, seconds = os.environ.get("JOBS_SUSPENDED", "100000"), os.environ.get("SUSPENDED_S", "65")
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalValkey(folder, admin=True, extra=["appendonly no"]) as server,
    ):
        found = in_process(_SUSPENDED, server.admin_url, count, seconds, timeout_s=900)
    more = 100 * (found["share"] - found["idle_share"])
    larger = found["suspended_bytes"] - found["waiting_bytes"]
    print(f"{found['suspended']:,.0f} suspended jobs, compared with none or with waiting ones:")
    print(f"{more:.2f} % of a core (bar 0.5), {larger:,.0f} bytes each (bar 1,024);", end=" ")
    print(f"{found['accepted']:,.0f} submissions were accepted")
    return found["accepted"] == int(count) + 1
