"""Handlers that run in child processes: they are imported there, so they are in a module."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from jobwire.job.errors import Fail, Retry
from jobwire.worker import App, Context

app = App()
TIMEOUT_S = 4.0
"""Of a handler that restarts its timeout every tenth of a second, for longer than that."""


class Numbers(msgspec.Struct):
    a: int
    b: int


@app.handler("add", process=True)
def add(payload: Numbers) -> dict[str, int]:
    return {"sum": payload.a + payload.b, "pid": os.getpid()}


@app.handler("add-async", process=True)
async def add_async(ctx: Context[Numbers]) -> dict[str, int]:
    await asyncio.sleep(0)
    return {"sum": ctx.payload.a + ctx.payload.b, "pid": os.getpid()}


@app.handler("waits for its turn", process=True)
def waits_for_its_turn(ctx: Context) -> str:
    for _ in range(round(12 * TIMEOUT_S)):
        ctx.restart_timeout()
        time.sleep(0.1)
    return "in time"


@app.handler("speaks", process=True)
def speaks(ctx: Context) -> object:
    ctx.progress(10, "begun")
    for number in range(150):
        ctx.emit("step", number)
    ctx.log("nearly there")
    return [ctx.job.id, ctx.job.task, ctx.attempt, ctx.payload]


@app.handler("fails", process=True)
def fails(ctx: Context) -> None:
    ctx.partial = "some"
    match ctx.payload["how"]:
        case "fail":
            raise Fail("no_way", "it cannot be done")
        case "retry":
            raise Retry(after=7, message="busy")
        case "crash":
            raise RuntimeError("inside")
        case "exit":
            sys.exit(3)
        case "os exit":
            os._exit(5)
        case _:
            os.kill(os.getpid(), signal.SIGSEGV)


@app.handler("polite", process=True)
def polite(ctx: Context) -> str:
    Path(ctx.payload["began"]).touch()
    while not ctx.cancelled:
        time.sleep(0.005)
    return "as far as it came"


@app.handler("polite-async", process=True)
async def polite_async(ctx: Context) -> str:
    Path(ctx.payload["began"]).touch()  # noqa: ASYNC240 - nothing else runs in this loop
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "as far as it came"
    return "not reached"


@app.handler("deaf", process=True)
def deaf(ctx: Context) -> None:
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    began = Path(ctx.payload["began"])
    (began.parent / "unready").write_text(f"{os.getpid()} {helper.pid}")
    (began.parent / "unready").rename(began)
    while True:
        time.sleep(1)


@app.handler("chatty", process=True)
def chatty(ctx: Context) -> None:
    Path(ctx.payload["began"]).touch()
    while True:
        ctx.emit("step")


@app.handler("echo", process=True)
def echo(ctx: Context) -> str:
    """Texts of the job that are not valid UTF-8 reach the handler, and leave it, as they are."""
    ctx.emit("step", {"ascii": ascii(ctx.job.id)})
    return ascii([ctx.job.id, ctx.job.task, ctx.job.tenant])


app.handler("raises \udcff", process=True)(fails)


@app.handler("writes to its pipe", process=True)
def writes_to_its_pipe(ctx: Context) -> None:
    """As a library may that writes to a descriptor which is not its own."""
    os.write(int(sys.argv[1]), b"\0\0\0\2{}")
    time.sleep(600)
