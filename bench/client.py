"""CPU of one EVALSHA (HSET, XADD, two EXPIRE) through each client, with many callers and with one.

The limit: at 100 callers at most a fifth of the best peer's CPU.
"""

import tempfile
from typing import Final

from bench.client_peer import PEERS
from bench.measure import Row, cpu_s, in_process, medians
from jobwire.local.valkey import LocalValkey

_ROUNDS: Final = 3
_CALLS: Final = {100: 20_000, 1: 4_000}
_BEST_RATIO: Final = 0.2


def run() -> bool:
    rows: dict[tuple[str, int], list[Row]] = {}
    with tempfile.TemporaryDirectory() as folder:
        server = LocalValkey(folder)
        server.start()
        try:
            for _ in range(_ROUNDS):
                for callers, calls in _CALLS.items():
                    for peer in PEERS:
                        before_s = cpu_s(server.pid)
                        row = in_process(
                            "bench.client_peer", peer, str(callers), str(calls), server.url
                        )
                        # The peer warms up with as many calls as it measures.
                        row["server_us"] = (cpu_s(server.pid) - before_s) / (2 * calls) * 1e6
                        rows.setdefault((peer, callers), []).append(row)
        finally:
            server.stop()
    print(f"{'client':<12} {'callers':>7} {'client µs':>10} {'server µs':>10} {'calls/s':>9}")
    table = {key: medians(of) for key, of in rows.items()}
    for (peer, callers), row in table.items():
        print(
            f"{peer:<12} {callers:>7} {row['client_us']:>10.1f} {row['server_us']:>10.1f}"
            f" {row['per_s']:>9.0f}"
        )
    best = min(table[peer, 100]["client_us"] for peer in PEERS if peer != "jobwire")
    ratio = table["jobwire", 100]["client_us"] / best
    print(f"ours / best peer at 100 callers: {ratio:.2f} (bar {_BEST_RATIO})")
    return ratio <= _BEST_RATIO
