"""Handlers of a worker that the tour starts as a program, to kill it."""

from __future__ import annotations

import asyncio
import os

from jobwire import App, Context

app = App()


@app.handler("long")
async def long(ctx: Context) -> int:
    """In its first delivery it does not end; its progress has the process that runs it."""
    await ctx.progress(0, str(os.getpid()))
    if ctx.job.deliveries == 1:
        await asyncio.Event().wait()
    return os.getpid()
