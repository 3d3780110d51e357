"""Handlers with branches, as coroutines of a worker and of a child process; a module, since child
processes import it.

Each call of a step's function appends a line to the file that the payload names: what was paid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from jobwire import App, Context

QUEUE = "branches"
KINDS = ("async", "process")
LONG_S = 3600
app = App(QUEUE)


def note(ctx: Context, name: str) -> str:
    with Path(ctx.payload["path"]).open("a") as file:
        file.write(f"{name}\n")
    return name


async def pay(ctx: Context, name: str) -> str:
    """Longer than the turn in which another branch waits."""
    note(ctx, name)
    await asyncio.sleep(0.05)
    return name


async def step_beside_a_sleep(ctx: Context) -> Any:
    found = await asyncio.gather(ctx.step("a", pay, ctx, "a"), ctx.sleep(LONG_S))
    return found[0]


async def once_behind_a_sleep(ctx: Context) -> Any:
    found = await asyncio.gather(ctx.sleep(LONG_S), ctx.step_once("a", pay, ctx, "a"))
    return found[1]


async def steps_go_on(ctx: Context) -> Any:
    async def three() -> list[str]:
        return [await ctx.step(name, pay, ctx, name) for name in "abc"]

    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.sleep(LONG_S))
        made = group.create_task(three())
    return made.result()


async def fetches(ctx: Context) -> Any:
    async def one(name: str) -> str:
        fetched = await ctx.step(f"fetch-{name}", pay, ctx, name)
        return await ctx.run("echo", {"name": fetched}, key=name)

    return await asyncio.gather(*(one(name) for name in "abcd"))


async def three_sleeps(ctx: Context) -> Any:
    await asyncio.gather(*(ctx.sleep(LONG_S + at, name=f"s{at}") for at in range(3)))
    return "slept"


async def two_signals(ctx: Context) -> Any:
    async def wait(name: str) -> str:
        found = await ctx.wait_for_signal(name)
        return await ctx.step(name, pay, ctx, f"{name}{found}")

    return await asyncio.gather(wait("a"), wait("b"))


async def children_beside_a_signal(ctx: Context) -> Any:
    async def children() -> list[Any]:
        made = [await ctx.submit("elsewhere", {}, key=key) for key in "xy"]
        return await ctx.step("all", note_all, await ctx.gather(*made))

    def note_all(found: list[int]) -> list[int]:
        note(ctx, "all")
        return found

    async def signal() -> str:
        found = await ctx.wait_for_signal("a")
        return await ctx.step("a", pay, ctx, f"a{found}")

    return await asyncio.gather(children(), signal())


async def step_that_waits(ctx: Context) -> Any:
    async def outer() -> str:
        await ctx.sleep(LONG_S)
        return await ctx.step("inner", pay, ctx, "inner")

    return await ctx.step("outer", outer)


async def nobody_awaits(ctx: Context) -> Any:
    async def tick() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            note(ctx, "ended")

    tasks = [asyncio.create_task(tick())]
    await asyncio.sleep(0)
    await ctx.sleep(LONG_S)
    return len(tasks)


async def given_up(ctx: Context) -> Any:
    async def wait() -> str:
        try:
            async with asyncio.timeout(0.01):
                await ctx.sleep(LONG_S)
        except TimeoutError:
            return "given up"
        return "slept"

    return await asyncio.gather(ctx.step("a", pay, ctx, "a"), wait())


async def short_sleeps_beside(ctx: Context) -> Any:
    async def poll() -> str:
        await ctx.step("a", pay, ctx, "a")
        await ctx.sleep(4.9, name="short")
        return await ctx.step("b", pay, ctx, "b")

    return await asyncio.gather(ctx.wait_for_signal("go"), poll())


CASES: dict[str, Callable[[Context], Awaitable[Any]]] = {
    each.__name__: each
    for each in (
        *(step_beside_a_sleep, once_behind_a_sleep, steps_go_on, fetches, three_sleeps),
        *(two_signals, children_beside_a_signal, step_that_waits, nobody_awaits, given_up),
        short_sleeps_beside,
    )
}


async def any_case(ctx: Context) -> Any:
    return await CASES[ctx.payload["case"]](ctx)


app.handler("async", uses={"durable"})(any_case)
app.handler("process", process=True, uses={"durable"})(any_case)


@app.handler("echo")
async def echo(ctx: Context) -> str:
    return ctx.payload["name"]
