"""`python -m bench [name …]`: run the benches named, or all of them."""

import importlib
import sys
from typing import Final

BENCHES: Final = {
    "client": "CPU of one EVALSHA: our connection beside redis-py, valkey-py and valkey-glide",
    "calls": "CPU of a caller for one submit, get and event: our clients beside bare httpx",
    "http": "CPU of one empty route beside bare ASGI and FastAPI; memory of idle watchers",
    "gateway": "CPU of one POST and of one job in a batch, beside an empty route (Q-4)",
    "watchers": "ten thousand watchers: memory, delivery, what they cost the server (Q-5)",
    "attacks": "how long /livez of one client takes while another attacks the gateway (O-6)",
    "aof": "what appendfsync costs, and what it loses when the server or the power fails",
    "photo": "CPU and memory of a photo beside a bare pyvips loop and Pillow (Q-6, I-36)",
    "bullmq": "server time of each BullMQ verb: our scripts beside those of npm BullMQ",
    "jobs": "CPU, rate and latency of a whole job beside the bare loop and seven peers (Q-1, Q-2)",
    "predictions": "S3 operations of a task, of an idle minute and of a long reconcile pass (P-34)",
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"no such bench: {', '.join(unknown)}; there are: {', '.join(BENCHES)}")
        return 2
    failed: list[str] = []
    for name in names or BENCHES:
        print(f"\n== {name}: {BENCHES[name]}", flush=True)
        if not importlib.import_module(f"bench.{name}").run():
            failed.append(name)
    if failed:
        print(f"\nratios not met: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
