"""Handlers with steps, in the three kinds; a module, since child processes import it.

Each call of a step's function appends a line to the file that the payload names: what was paid.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from jobwire import App, Context, Retry, StepInterrupted, SyncContext
from jobwire.job.retry import fixed
from jobwire.worker.middleware import CallNext

app = App("durable")
KINDS = ("async", "thread", "process")


class Work(msgspec.Struct):
    path: str
    """The file of the calls."""
    stop: str = ""
    """Before this step the handler waits for the file `go`, as long as it is missing."""
    fail: list[str] = []
    """Steps whose function raises, once for each time that they are named."""
    retry: bool = False
    """They raise `Retry`."""


class Bill(msgspec.Struct):
    step: str
    cents: int


def calls(path: str | Path) -> list[str]:
    """The calls, in order."""
    file = Path(path)
    return file.read_text().split() if file.exists() else []


def pay(work: Work, name: str) -> Bill:
    file = Path(work.path)
    with file.open("a") as opened:
        opened.write(f"{name}\n")
    if calls(file).count(name) <= work.fail.count(name):
        raise Retry(0, "not yet") if work.retry else RuntimeError("the bank is closed")
    return Bill(name, 100)


async def pay_async(work: Work, name: str) -> Bill:
    return pay(work, name)


def must_wait(work: Work, name: str) -> bool:
    return work.stop == name and not Path(work.path).with_name("go").exists()


def mark_waiting(work: Work) -> None:
    Path(work.path).with_name("waits").touch()


@app.handler("async", retries=2, backoff=fixed(0))
async def with_steps(ctx: Context[Work]) -> list[int]:
    import asyncio

    work = ctx.payload
    await ctx.emit("before")
    first = await ctx.step("one", pay_async, work, "one")
    await ctx.emit("between")
    try:
        second = await ctx.step_once("two", pay, work, "two")
    except StepInterrupted as interrupted:
        second = Bill(f"interrupted {interrupted.name}", -1)
    mark_waiting(work)
    while must_wait(work, "three"):
        await asyncio.sleep(0.01)
    third = await ctx.step("one", pay, work, "three")
    assert isinstance(first, Bill)
    return [first.cents, second.cents, third.cents]


def steps_in_def(ctx: SyncContext[Work]) -> list[int]:
    work = ctx.payload
    ctx.emit("before")
    first = ctx.step("one", pay_async, work, "one")
    ctx.emit("between")
    try:
        second = ctx.step_once("two", pay, work, "two")
    except StepInterrupted as interrupted:
        second = Bill(f"interrupted {interrupted.name}", -1)
    mark_waiting(work)
    while must_wait(work, "three") and not ctx.cancelled:
        time.sleep(0.01)
    third = ctx.step("one", pay, work, "three")
    assert isinstance(first, Bill)
    return [first.cents, second.cents, third.cents]


app.handler("thread", retries=2, backoff=fixed(0))(steps_in_def)
app.handler("process", retries=2, backoff=fixed(0), process=True)(steps_in_def)


def chatty(ctx: SyncContext) -> int:
    for _ in range(100):
        ctx.step("one", int)
    for number in range(500):
        ctx.emit("tick", number)
    return 500


app.handler("chatty-thread")(chatty)
app.handler("chatty-process", process=True)(chatty)

around = App("around")


@around.middleware
async def load_before_and_after(ctx: Context, call_next: CallNext) -> object:
    before = await ctx.step("load", lambda: "before")
    result = await call_next()
    return [before, result, await ctx.step("load", lambda: "after")]


@around.handler("async")
async def loads(ctx: Context) -> str:
    return await ctx.step("load", lambda: "handler")


def loads_in_def(ctx: SyncContext) -> str:
    return ctx.step("load", lambda: "handler")


around.handler("thread")(loads_in_def)
around.handler("process", process=True)(loads_in_def)
