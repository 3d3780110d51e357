"""The worker of `tools/screenshots.py`: tasks that take a while, report, and sometimes fail."""

from __future__ import annotations

import asyncio

from jobwire import App, Context, Fail, Retry

app = App("shop")
TEXT = (
    "A lease protects a job from being run by two workers at the same time. The worker that holds "
    "it renews it every ten seconds; when it stops, another worker takes the job over."
)


@app.handler("summarize", example={"document": "docs/worker.md", "sentences": 2})
async def summarize(ctx: Context) -> dict[str, object]:
    """Writes a text word by word."""
    hold_s = float(ctx.payload.get("hold_s", 0))
    if ctx.payload.get("shaky") and ctx.attempt == 1:
        await ctx.progress(20, "4 passages found")
        await asyncio.sleep(1.2)
        raise Retry(after=0.8, message="the model was busy")
    await ctx.progress(20, "4 passages found")
    words = TEXT.split(" ")
    for at, word in enumerate(words):
        await ctx.emit("token", {"text": word if at == 0 else f" {word}"})
        if at == len(words) * 6 // 10:
            await ctx.progress(62, "writing")
            await asyncio.sleep(hold_s)
    return {"summary": TEXT, "words": len(words)}


@app.handler("resize", example={"key": "photos/7f3c.jpg", "width": 1280})
async def resize(ctx: Context) -> dict[str, object]:
    await asyncio.sleep(float(ctx.payload.get("s", 0.05)))
    return {"key": "photos/7f3c-1280.webp", "bytes": 240_118}


@app.handler("invoice", example={"order": 4711})
async def invoice(ctx: Context) -> dict[str, object]:
    await asyncio.sleep(float(ctx.payload.get("s", 0.02)))
    match ctx.payload.get("fault"):
        case "timeout":
            raise Fail("timeout", "no answer from the tax service within 30 s")
        case "address":
            raise Fail("invalid_recipient", "550 5.1.1 mailbox unavailable")
        case _:
            return {"number": "2026-004711", "total": "119.00"}


@app.handler("import", retries=3, example={"file": "orders.csv"})
async def import_file(ctx: Context) -> dict[str, int]:
    await asyncio.sleep(0.1)
    if ctx.payload.get("bad"):
        raise Fail("decode_failed", "line 88: the file ends early; send it again")
    return {"rows": 1200}


# ── queues ───────────────────────────────────────────────────────────────────────────────────────


@app.handler("render", queue="video", wire="bullmq")
async def render(ctx: Context) -> dict[str, object]:
    """Renders a scene; the first attempt is out of memory."""
    if ctx.attempt == 1:
        await ctx.progress(10, "scene 7: 240 frames")
        await asyncio.sleep(0.9)
        raise Retry(message="the encoder is out of memory at frame 31")
    await ctx.progress(10, "scene 7: 240 frames")
    await ctx.log("scene 7: encoder restarted with 2 threads")
    await asyncio.sleep(0.4)
    await ctx.progress(62, "frame 149 of 240")
    await asyncio.sleep(float(ctx.payload.get("hold_s", 0)))
    return {"videoUrl": "clips/harbour-7.mp4", "duration": 8}


@app.handler("*", queue="video", wire="bullmq")
async def clip(ctx: Context) -> dict[str, object]:
    await asyncio.sleep(float(ctx.payload.get("hold_s", 0.3)))
    return {"frames": 240}


@app.handler("*", queue="email", wire="bullmq", concurrency=4)
async def mail(ctx: Context) -> dict[str, object]:
    await asyncio.sleep(0.05)
    if ctx.payload.get("bounce"):
        raise Fail("invalid_recipient", "550 5.1.1 mailbox unavailable")
    return {"accepted": True, "queued_as": "8F2C1"}
