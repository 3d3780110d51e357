"""The cost of a recorded step (D-22): one round trip, CPU of the client and of the server.

100 jobs of 100 steps each, less the same jobs without steps; three rounds, medians. And one job at
a time, where nothing is written together. Bars of times are for an idle machine; only the number of
calls decides.
"""

import os
import tempfile
from typing import Final

from bench.measure import in_process, medians
from jobwire.local.valkey import LocalValkey

_PEER: Final = "bench.peers.durable_peer"
_ROUNDS: Final = 3
_BARS: Final = {"client_us": 25.0, "server_us": 20.0}


def run() -> bool:
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalValkey(folder, admin=True, extra=["appendonly no"]) as server,
    ):
        url = server.admin_url
        together = medians([in_process(_PEER, url, "100", "100") for _ in range(_ROUNDS)])
        alone = medians([in_process(_PEER, url, "1", "900") for _ in range(_ROUNDS)])
    print(f"load average of the last minute: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for name, found in (("100 jobs at a time", together), ("one job", alone)):
        parts = [
            f"{found[each]:5.1f} µs {each.partition('_')[0]} (bar {_BARS[each]:g})"
            for each in _BARS
        ]
        print(f"{name:20}", *parts, f"{found['calls']:.2f} calls a step")
    return alone["calls"] < 1.05
