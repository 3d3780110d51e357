"""The worker of the tests over all systems: jobs, and the queue `mail` of the BullMQ wire."""

from __future__ import annotations

import asyncio

from jobwire import App, Context
from jobwire.job.errors import Fail
from jobwire.job.messages import Json

app = App()


@app.handler("echo")
@app.handler("echo", queue="mail", wire="bullmq")
async def echo(ctx: Context) -> Json:
    return ctx.payload


@app.handler("fail")
async def fail(ctx: Context) -> Json:
    raise Fail("no_disk", f"no disk for {ctx.job.id}")


@app.handler("fail", queue="mail", wire="bullmq", retries=0)
async def crash(ctx: Context) -> Json:
    raise ValueError(f"no disk {ctx.job.id.rjust(6, '1')}")


@app.handler("hold")
@app.handler("hold", queue="mail", wire="bullmq")
async def hold(ctx: Context) -> Json:
    await asyncio.Event().wait()
    return None
