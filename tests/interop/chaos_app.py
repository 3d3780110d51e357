"""The App of our workers in the fleet under faults; its handlers behave as those of the other
programs."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from jobwire import App, Context

app = App()


@app.handler("*", queue=os.environ["CHAOS_QUEUE"], wire="bullmq")
async def handle(ctx: Context) -> dict[str, Any]:
    task = ctx.job.task
    if task == "broken" or (task == "flaky" and ctx.attempt == 1):
        raise RuntimeError(task)
    await asyncio.sleep(ctx.payload.get("ms", 0) / 1000)
    await ctx.progress(50)
    return {"by": "jobwire", "n": ctx.payload["n"]}
