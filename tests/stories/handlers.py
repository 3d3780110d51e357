"""The tasks of the story tests. Each run first appends a line to a file outside the product, so the
tests do not depend on what the product reports about itself."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from pathlib import Path

from jobwire import App, Context, Fail, FailedJob, StepInterrupted, SyncContext

app = App()


def mark(ctx: Context) -> None:
    """`job attempt deliveries pid`, in one write."""
    job = ctx.job
    line = f"{job.id} {job.attempt} {job.deliveries} {os.getpid()}\n"
    descriptor = os.open(ctx.payload["effects"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)


@app.handler("quick")
async def quick(ctx: Context) -> int:
    mark(ctx)
    return os.getpid()


@app.handler("gate")
async def gate(ctx: Context) -> int:
    """Waits until a file exists, and reports before and after; then for `end`, if given."""
    mark(ctx)
    await ctx.emit("before")
    while not Path(ctx.payload["gate"]).exists():  # noqa: ASYNC240 - quick, and nothing else runs in this loop
        await asyncio.sleep(0.01)
    await ctx.emit("after")
    while not Path(ctx.payload.get("end", "/")).exists():  # noqa: ASYNC240 - the same
        await asyncio.sleep(0.01)
    return os.getpid()


@app.handler("blocks")
async def blocks(ctx: Context) -> int:
    """Blocks the event loop until a file exists."""
    mark(ctx)
    while not Path(ctx.payload["gate"]).exists():  # noqa: ASYNC240 - blocking is the test
        time.sleep(0.01)  # noqa: ASYNC251 - blocking is the test
    return os.getpid()


@app.handler("holds")
def holds(ctx: Context) -> int:
    """The first run holds the interpreter lock in C code, as some extensions do."""
    mark(ctx)
    if ctx.job.deliveries == 1:
        ctypes.PyDLL(None).usleep(round(ctx.payload["seconds"] * 1e6))
    return os.getpid()


@app.handler("thread")
def thread(ctx: Context) -> int:
    """A thread that cannot be stopped."""
    mark(ctx)
    while not Path(ctx.payload["gate"]).exists():
        time.sleep(0.01)
    return os.getpid()


@app.handler("flaky", retries=3)
async def flaky(ctx: Context) -> int:
    """Fails at first."""
    mark(ctx)
    if ctx.attempt < 2:
        raise RuntimeError("at first")
    return os.getpid()


@app.handler("tokens")
async def tokens(ctx: Context) -> int:
    """Reports `count` numbered tokens; stops before number `pause_at` until the gate file
    exists."""
    mark(ctx)
    for number in range(ctx.payload["count"]):
        while number == ctx.payload["pause_at"] and not Path(ctx.payload["gate"]).exists():  # noqa: ASYNC240 - quick
            await asyncio.sleep(0.01)
        await ctx.emit("token", {"n": number})
    return os.getpid()


# ── steps and waits ──────────────────────────────────────────────────────────────────────────────

WAITS = "waits"
"""The queue of jobs that are suspended."""


def pay(file: str, job_id: str, name: str) -> str:
    """`job step`, in one write; the result is the name."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{job_id} {name}\n".encode())
    os.close(descriptor)
    return name


@app.handler("part", queue=WAITS)
async def part(ctx: Context) -> str:
    """Waits until a file exists."""
    while not Path(ctx.payload["gate"]).exists():  # noqa: ASYNC240 - quick
        await asyncio.sleep(0.01)
    return pay(ctx.payload["paid"], ctx.payload["parent"], ctx.payload["name"])


@app.handler("waits-async", queue=WAITS, uses={"durable"})
async def waits_async(ctx: Context) -> list[str]:
    """Three steps, one of which may run once; a sleep, a signal, two children."""
    mark(ctx)
    file, job_id = ctx.payload["paid"], ctx.job.id
    found = [await ctx.step("one", pay, file, job_id, "one")]
    await ctx.sleep(3600)
    try:
        found.append(await ctx.step_once("two", pay, file, job_id, "two"))
    except StepInterrupted:
        found.append("interrupted")
    found.append(await ctx.wait_for_signal("approval"))
    parts = [
        await ctx.submit("part", {**ctx.payload, "parent": job_id, "name": name}, key=name)
        for name in ("left", "right")
    ]
    found += await ctx.gather(*parts)
    found.append(await ctx.step("three", pay, file, job_id, "three"))
    return found


def waits_thread(ctx: SyncContext) -> list[str]:
    mark(ctx)
    file, job_id = ctx.payload["paid"], ctx.job.id
    found = [ctx.step("one", pay, file, job_id, "one")]
    ctx.sleep(3600)
    try:
        found.append(ctx.step_once("two", pay, file, job_id, "two"))
    except StepInterrupted:
        found.append("interrupted")
    found.append(ctx.wait_for_signal("approval"))
    parts = [
        ctx.submit("part", {**ctx.payload, "parent": job_id, "name": name}, key=name)
        for name in ("left", "right")
    ]
    found += ctx.gather(*parts)
    found.append(ctx.step("three", pay, file, job_id, "three"))
    return found


app.handler("waits-thread", queue=WAITS, uses={"durable"})(waits_thread)
app.handler("waits-process", queue=WAITS, uses={"durable"}, process=True)(waits_thread)


class SoldOut(Exception):
    pass


def book(file: str, job_id: str, name: str) -> str:
    """There is a car again as soon as the job sleeps."""
    pay(file, job_id, f"book-{name}")
    if name == "car" and "cancel-flight" not in Path(file).read_text():
        raise SoldOut("no car is left")
    return name


@app.handler("waits-saga", queue=WAITS, uses={"durable"})
async def waits_saga(ctx: Context) -> list[str]:
    """Cancels what it has booked, and sleeps."""
    mark(ctx)
    file, job_id = ctx.payload["paid"], ctx.job.id
    booked: list[str] = []
    try:
        for name in ("flight", "hotel", "car"):
            await ctx.step(f"book-{name}", book, file, job_id, name)
            booked.append(name)
    except SoldOut as error:
        for name in reversed(booked):
            await ctx.step(f"cancel-{name}", pay, file, job_id, f"cancel-{name}")
        await ctx.sleep(3600)
        return [str(error), await ctx.step("mail", pay, file, job_id, "mail")]
    return booked


# ── failures ─────────────────────────────────────────────────────────────────────────────────────


@app.handler("told")
async def told(ctx: Context[FailedJob]) -> str:
    assert ctx.payload.payload is not None
    pay(ctx.payload.payload["told"], ctx.payload.job_id, ctx.payload.error.code)
    return ctx.payload.job_id


@app.handler("fails", on_failure=told)
async def fails(ctx: Context) -> None:
    mark(ctx)
    raise Fail("no_audio", "there is no sound")


# ── text that is taken back ──────────────────────────────────────────────────────────────────────


@app.handler("recites", queue=WAITS, uses={"durable"}, retries=5)
async def recites(ctx: Context) -> dict[str, str]:
    """Emits words, a third of them in a step. Its first runs end at the words `stops`: they wait
    there to be killed, fail, or wait for a signal, as `way` says."""
    folder = Path(ctx.payload["gate"]).parent
    stop = ctx.attempt - 1
    if ctx.payload["way"] != "retry":
        stop = int((folder / "phase").read_text())
    words, stops, way = ctx.payload["words"], ctx.payload["stops"], ctx.payload["way"]

    async def say(first: int, last: int) -> None:
        for at in range(first, last):
            if way == "suspend":
                if at in stops:
                    await ctx.wait_for_signal(f"go-{at}")
            elif stops[stop : stop + 1] == [at]:
                await ctx.log("stops here")
                (folder / f"{ctx.job.id}-{stop}").touch()
                if way == "retry":
                    raise RuntimeError("it stops here")
                await asyncio.Event().wait()
            await ctx.emit("token", {"text": f"{words[at]} "})
            if at % 5 == 0:
                await ctx.progress(100 * at / len(words))
                await asyncio.sleep(0)

    third = len(words) // 3
    await say(0, third)
    await ctx.step("middle", say, third, 2 * third)
    await say(2 * third, len(words))
    return {"text": "".join(f"{word} " for word in words)}
