"""`python -m tools.memory_per_job [JOBS]`: bytes that a finished job takes on the server.

Starts a Valkey, a gateway and a worker of their own, runs jobs of three kinds, and compares the
server's `used_memory_dataset` before and after. The table of docs/operations.md is made with it.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Final

from jobwire import App, Client, Context, NewJob
from jobwire.valkey import Config
from jobwire.valkey.blocking_socket import BlockingSocket
from tests.fleet.runner import Fleet
from tests.support.wait import wait_until_sync

app = App()
# What is measured: payload bytes, result bytes, events beside those of every job.
KINDS: Final = {
    "payload 20 bytes, three events": (20, 0, 0),
    "payload 1 KB, result 1 KB, ten events": (1000, 1000, 7),
    "the same with 107 events": (1000, 1000, 104),
}


@app.handler("measured")
async def measured(ctx: Context, payload: dict[str, int | str]) -> str:
    """Report so often, and return so much."""
    for _ in range(int(str(payload["events"]))):
        await ctx.emit("note", {"text": "x" * 40})
    return "x" * int(str(payload["result"]))


def _used(server: BlockingSocket) -> int:
    found = re.search(r"used_memory_dataset:(\d+)", str(server.call("INFO", "memory")))
    return int(found[1]) if found else 0


def _idle(client: Client) -> bool:
    now = client.stats().now
    return now.waiting + now.running == 0


def main(count: int) -> None:
    """Measure each kind, after jobs that warm the server up."""
    with tempfile.TemporaryDirectory() as folder, Fleet(Path(folder)) as fleet:
        fleet.start_gateway()
        fleet.start_worker("tools.memory_per_job:app")
        config = Config.from_url(fleet.valkey.admin_url)
        server = BlockingSocket(config, "memory-per-job", timeout_s=30)
        with fleet.client() as client:
            for name, (payload, result, events) in {"warm-up": (20, 0, 0), **KINDS}.items():
                before = _used(server)
                text = {"text": "x" * max(0, payload - 40), "events": events, "result": result}
                client.batch([NewJob("measured", text) for _ in range(count)])
                wait_until_sync(lambda: _idle(client), "the jobs to end", timeout_s=300)
                print(f"{name}: {(_used(server) - before) / count:,.0f} bytes")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
