"""A second App of the page's tests: a queue and a cron entry of its own."""

from __future__ import annotations

from jobwire import App, Context

app = App("nightly")


@app.cron("0 3 1 1 *", name="nightly", payload={"kind": "full"})
@app.handler("report", queue="reports")
async def report(ctx: Context) -> object:
    return ctx.payload
