"""A handler that reports between all calls that can be recorded, in each kind."""

from __future__ import annotations

import asyncio
from typing import Any

from jobwire import App, Context, SyncContext

app = App("replay")
SAID = [f"{number}" for number in range(9)]


def paid() -> str:
    return "paid"


@app.handler("part")
async def part(_: Context) -> str:
    return "part"


@app.handler("async", uses={"durable"})
async def all_async(ctx: Context) -> None:
    await ctx.emit("said", "0")
    await ctx.step("one", paid)
    await ctx.emit("said", "1")
    await ctx.sleep(60)
    await ctx.log("2")
    await ctx.emit("said", "2")
    child = await ctx.submit("part", {})
    await ctx.emit("said", "3")
    await ctx.gather(child)
    await ctx.emit("said", "4")
    await asyncio.gather(ctx.step("two", paid), ctx.step("three", paid))
    await ctx.emit("said", "5")
    await ctx.wait_for_signal("go")
    await ctx.emit("said", "6")
    await ctx.sleep(60)
    await ctx.emit("said", "7")
    await ctx.step("last", paid)
    await ctx.emit("said", "8")


def _all(ctx: SyncContext) -> None:
    ctx.emit("said", "0")
    ctx.step("one", paid)
    ctx.emit("said", "1")
    ctx.sleep(60)
    ctx.log("2")
    ctx.emit("said", "2")
    child = ctx.submit("part", {})
    ctx.emit("said", "3")
    ctx.gather(child)
    ctx.emit("said", "4")
    ctx.step("two", paid)
    ctx.step("three", paid)
    ctx.emit("said", "5")
    ctx.wait_for_signal("go")
    ctx.emit("said", "6")
    ctx.sleep(60)
    ctx.emit("said", "7")
    ctx.step("last", paid)
    ctx.emit("said", "8")


@app.handler("thread", uses={"durable"})
def all_thread(ctx: SyncContext) -> None:
    _all(ctx)


@app.handler("process", uses={"durable"}, process=True)
def all_process(ctx: SyncContext) -> None:
    _all(ctx)


@app.handler("branches", uses={"durable"})
async def branches(ctx: Context) -> None:
    """Two branches, whose waits are over one after the other."""

    async def branch(name: str) -> None:
        await ctx.emit("said", f"{name} begins")
        await ctx.step(f"step-{name}", paid)
        await ctx.emit("said", f"{name} goes on")
        await ctx.sleep(60, name=f"sleep-{name}")
        await ctx.emit("said", f"{name} ends")

    await ctx.emit("said", "before")
    await branch("left")
    await asyncio.gather(branch("right"), ctx.step("other", paid))
    await ctx.emit("said", "after")


@app.handler("waits in a step", uses={"durable"})
async def waits_in_a_step(ctx: Context) -> None:
    async def outer() -> None:
        await ctx.emit("said", "in it")
        await ctx.wait_for_signal("go")
        await ctx.emit("said", "after the wait")

    await ctx.emit("said", "before")
    await ctx.step("outer", outer)
    await ctx.emit("said", "after it")


@app.handler("thread waits in a step", uses={"durable"})
def thread_waits_in_a_step(ctx: SyncContext) -> None:
    def outer() -> None:
        ctx.emit("said", "in it")
        ctx.wait_for_signal("go")
        ctx.emit("said", "after the wait")

    ctx.emit("said", "before")
    ctx.step("outer", outer)
    ctx.emit("said", "after it")


@app.handler("changed", uses={"durable"})
async def changed(ctx: Context[dict[str, Any]]) -> None:
    """The later run has no step of this name, and no further call."""
    await ctx.emit("said", "before")
    if not ctx.replaying:
        await ctx.step("removed", paid)
    await ctx.sleep(60)
    await ctx.emit("said", "after")
