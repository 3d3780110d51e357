"""The worker of the page's test: counts on when the test says so, not when time has passed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from jobwire import App, Context, Fail

app = App()
GATE = "TEST_PAGE_GATE"


@app.handler("count")
async def count(ctx: Context, payload: dict[str, int]) -> dict[str, int]:
    """One number for each line that the gate has."""
    gate = Path(os.environ[GATE])
    for number in range(1, payload["to"] + 1):
        while (lines := await asyncio.to_thread(gate.read_text)).count("\n") < number:
            await asyncio.sleep(0.01)
        if "stop" in lines:
            raise Fail("no_more", "somebody said stop")
        await ctx.progress(100 * number / payload["to"], f"at {number}")
    return {"counted": payload["to"]}
