"""Peak memory of a process that finishes tasks: a pass of reconcile, or webhooks (P-36).

    python -m tests.systems.predictions.memory ADDRESSES [WEBHOOK …]

Prints the peak of its resident memory in MB. `peak_of` starts it over a site whose outputs were
made large.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from base64 import b64decode, b64encode
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from jobwire.systems.predictions.reconcile import reconcile
from jobwire.systems.predictions.webhook import handle
from tests.standins.replicate import Webhook
from tests.systems.predictions.site import Addresses, Site, build_flow, png

ROOT = Path(__file__).parents[3]


def picture_of(size_mb: int) -> bytes:
    """A PNG with so much data behind its end."""
    return png(3, 5, 7) + b"\0" * (size_mb * 1024 * 1024 - 100)


def enlarge_outputs(site: Site, size_mb: int) -> None:
    """Make every output of the provider large."""
    body = picture_of(size_mb)
    site.replicate.files = dict.fromkeys(site.replicate.files, body)


def peak_of(site: Site, *webhooks: tuple[str, Webhook]) -> float:
    """The peak of a new process in MB: it takes webhooks by task id, or makes a pass."""
    addresses = asdict(replace(site.addresses, shift_s=site.clock.shift_s))
    given = [
        json.dumps([tid, dict(each.headers), b64encode(each.body).decode()])
        for tid, each in webhooks
    ]
    done = subprocess.run(
        [sys.executable, "-m", __name__, json.dumps(addresses), *given],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


async def _run(addresses: dict[str, Any], webhooks: list[str]) -> None:
    flow = build_flow(Addresses(**addresses))
    if not webhooks:
        await reconcile(flow)
        return

    async def take(given: str) -> None:
        tid, headers, body = json.loads(given)
        answer = await handle(flow, "replicate", tid, headers, {}, b64decode(body))
        assert answer.status == 200, answer

    await asyncio.gather(*map(take, webhooks))


if __name__ == "__main__":
    asyncio.run(_run(json.loads(sys.argv[1]), sys.argv[2:]))
    peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert peak is not None
    print(int(peak[1]) / 1024)
