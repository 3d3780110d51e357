"""Handlers for tests from the outside."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

import msgspec

from jobwire import App, Context, Fail, Retry

app = App()
_log = logging.getLogger(__name__)


class Text(msgspec.Struct):
    text: str


@app.cron("0 0 29 2 *", tz="Europe/Berlin", payload={"to": 1}, name="leap day")
@app.handler("count", example={"to": 3})
async def count(ctx: Context) -> dict[str, int]:
    to: int = ctx.payload.get("to", 3)
    for number in range(1, to + 1):
        await ctx.progress(100 * number / to, f"at {number}")
    return {"counted": to}


@app.handler("say")
async def say(ctx: Context, payload: Text) -> dict[str, str]:
    """Emits tokens as a language model does."""
    for at, word in enumerate(payload.text.split(" ")):
        await ctx.emit("token", {"text": word if at == 0 else f" {word}", "at": at, "attempt": 1})
    return {"text": payload.text}


@app.handler("echo")
async def echo(ctx: Context) -> object:
    """Publishes its payload as an event, a log line, progress, and a result."""
    await ctx.emit("word", ctx.payload)
    text = str(ctx.payload.get("text", ""))
    await ctx.log(text)
    await ctx.progress(50, text)
    await ctx.emit("token", {"text": text})
    return ctx.payload


@app.handler("fail")
async def fail(ctx: Context) -> None:
    raise Fail("no_luck", str(ctx.payload.get("text", "it was not to be")))


@app.handler("crash")
def crash(ctx: Context) -> None:
    _divide(1, 0)


def _divide(a: int, b: int) -> float:
    return a / b


@app.handler("log")
async def log_in_loop(ctx: Context) -> None:
    _log.info("at work: %s", ctx.job.id)
    if ctx.payload.get("wait"):
        await asyncio.Event().wait()


@app.handler("log-in-thread")
def log_in_thread(ctx: Context) -> None:
    _log.info("at work: %s", ctx.job.id)
    while ctx.payload.get("wait") and not ctx.cancelled:
        time.sleep(0.01)


@app.handler("log-in-process", process=True)
async def log_in_process(ctx: Context) -> None:
    _log.info("at work: %s", ctx.job.id)
    if ctx.payload.get("wait"):
        raise LookupError("not here")


@app.handler("shaky", retries=5)
async def shaky(ctx: Context) -> int:
    if ctx.attempt < 3:
        raise Retry(after=0.05, message="not yet")
    return ctx.attempt


@app.handler("forever")
async def forever(ctx: Context) -> None:
    await ctx.progress(1, "begun")
    await asyncio.Event().wait()


@app.handler("gated")
async def gated(ctx: Context) -> int:
    """Reports one number for each line that is appended to the file."""
    reported = 0
    while reported < ctx.payload["to"]:
        if await asyncio.to_thread(_lines, Path(ctx.payload["gate"])) > reported:
            reported += 1
            await ctx.emit("number", {"n": reported})
        else:
            await asyncio.sleep(0.01)
    return reported


@app.handler("block")
async def block(ctx: Context) -> None:
    """Blocks the event loop until the file has a line."""
    while not _lines(Path(ctx.payload["gate"])):
        time.sleep(0.01)  # noqa: ASYNC251 - blocking is the test


@app.handler("trace")
async def trace(ctx: Context) -> dict[str, str]:
    """Returns the `traceparent` of the job and that of an outgoing request of this handler."""
    return {"came": ctx.job.traceparent, "goes": _outgoing()}


@app.handler("trace-in-thread")
def trace_in_thread(ctx: Context) -> dict[str, str]:
    return {"came": ctx.job.traceparent, "goes": _outgoing()}


@app.handler("trace-in-process", process=True)
async def trace_in_process(ctx: Context) -> dict[str, str]:
    if "fail" in ctx.payload:
        raise Fail("no_luck", "not here either")
    if "wait" in ctx.payload:
        await ctx.progress(1, "begun")
        await asyncio.Event().wait()
    return {"came": ctx.job.traceparent, "goes": _outgoing()}


def _outgoing() -> str:
    from opentelemetry.propagate import inject

    headers: dict[str, str] = {}
    inject(headers)
    return headers.get("traceparent", "")


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0
