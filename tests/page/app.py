"""The worker of the page's tests. Files in the gate folder control its jobs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from jobwire import App, Context, Fail, Retry

app = App()
GATE = "TEST_PAGE_GATE"
WORDS = "A lease protects a job from being run by two workers at the same time."


async def gate(name: object) -> None:
    """Wait until the test releases this job."""
    file = Path(os.environ[GATE]) / str(name)
    while not await asyncio.to_thread(file.exists):
        await asyncio.sleep(0.02)


@app.handler("speak", example={"gate": "", "text": WORDS})
async def speak(ctx: Context) -> dict[str, str]:
    """Emits word by word, as a language model does."""
    text = str(ctx.payload.get("text", WORDS))
    words = text.split(" ")
    await ctx.progress(10, "reading")
    for at, word in enumerate(words):
        await ctx.emit("token", {"text": word if at == 0 else f" {word}"})
        if at == len(words) // 2 and ctx.payload.get("gate"):
            await ctx.progress(50, "half of it")
            await gate(ctx.payload["gate"])
    await ctx.progress(100, "spoken")
    return {"text": text}


@app.handler("break", example={"message": "it broke"})
async def fail(ctx: Context) -> None:
    raise Fail(str(ctx.payload.get("code", "broken")), str(ctx.payload.get("message", "it broke")))


@app.handler("raise")
async def crash(ctx: Context) -> None:
    raise ZeroDivisionError(str(ctx.payload.get("text", "")))


@app.handler("shaky", retries=3, example={})
async def shaky(ctx: Context) -> dict[str, int]:
    if ctx.attempt < 3:
        raise Retry(after=0.05, message="not yet")
    return {"attempts": ctx.attempt}


@app.handler("odd", example={})
async def odd(ctx: Context) -> object:
    """Returns what it was given, and reports it in every way."""
    text = str(ctx.payload.get("text", ""))
    await ctx.emit("handlers.own", ctx.payload)
    await ctx.log(text)
    await ctx.progress(50, text)
    return ctx.payload


# ── queues ───────────────────────────────────────────────────────────────────────────────────────

QUEUE = "films"


@app.handler("render", queue=QUEUE, wire="bullmq")
async def render(ctx: Context) -> dict[str, object]:
    """Waits at its gate after a report and a line of the log."""
    await ctx.progress(50, "half of it")
    await ctx.log("frame 1 of 2")
    if ctx.payload.get("gate"):
        await gate(ctx.payload["gate"])
    return {"frames": 2}


@app.handler("break", queue=QUEUE, wire="bullmq")
async def break_film(ctx: Context) -> None:
    raise RuntimeError(str(ctx.payload.get("text", "it broke")))


@app.handler("*", queue=QUEUE, wire="bullmq")
async def any_film(ctx: Context) -> object:
    """Returns what it was given, and reports it in every way."""
    text = str(ctx.payload.get("text", ""))
    await ctx.log(text)
    await ctx.progress(50, text)
    return ctx.payload
