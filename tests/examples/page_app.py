"""The worker of the page's test: the test controls its progress."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from jobwire import App, Context, Fail

app = App()
GATE = "TEST_PAGE_GATE"


@app.handler("count")
async def count(ctx: Context, payload: dict[str, int]) -> dict[str, int]:
    """Report one number for each line of the gate file."""
    gate = Path(os.environ[GATE])
    for number in range(1, payload["to"] + 1):
        while (lines := await asyncio.to_thread(gate.read_text)).count("\n") < number:
            await asyncio.sleep(0.01)
        if "stop" in lines:
            raise Fail("no_more", "stopped by the test")
        await ctx.progress(100 * number / payload["to"], f"at {number}")
    return {"counted": payload["to"]}
