"""A worker in ten lines: `jobwire worker examples.worker:app`."""

import asyncio

from jobwire import App, Context

app = App()


@app.handler("count", retries=2, example={"to": 3})
async def count(ctx: Context, payload: dict[str, int]) -> dict[str, int]:
    for number in range(1, payload["to"] + 1):
        await asyncio.sleep(0.1)
        await ctx.progress(100 * number / payload["to"], f"at {number}")
    return {"counted": payload["to"]}
