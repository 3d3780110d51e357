"""Typed tasks as a user writes them; a test runs the type checkers on this file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

from jobwire import App, AsyncClient, Client, Context, Task


@dataclass
class Resize:
    url: str
    width: int


@dataclass
class Size:
    width: int
    height: int


app = App()


@app.handler("resize")
async def resize(ctx: Context, payload: Resize) -> Size:
    await ctx.progress(50)
    return Size(payload.width, payload.width // 2)


@app.handler("measure")
def measure(ctx: Context[Resize]) -> Size:
    return Size(ctx.payload.width, 1)


@app.handler("crop")
async def crop(ctx: Context[Resize, Size]) -> Size:
    assert_type(ctx.state, Size)
    return ctx.state


@app.handler("any")
async def untyped(ctx: Context) -> Size:
    width: int = ctx.payload["width"]
    limit: Size = ctx.state.limit
    return limit if width > limit.width else Size(width, ctx.payload["height"])


@app.handler("count")
def count(payload: Resize) -> int:
    return len(payload.url)


SHARED = Task("resize", Resize, Size)


def typed(client: Client, payload: Resize) -> None:
    assert_type(client.run(resize, payload), Size)
    assert_type(client.run(measure, payload), Size)
    assert_type(client.run(crop, payload), Size)
    assert_type(client.run(untyped, {"width": 1, "height": 2}), Size)
    assert_type(client.run(count, payload), int)
    assert_type(client.run(SHARED, payload), Size)
    assert_type(client.run("resize", {"url": "a", "width": 1}), Any)
    client.submit(resize, payload, delay_s=1)
    client.submit("resize", {"url": "a", "width": 1})


async def typed_async(client: AsyncClient, ctx: Context, payload: Resize) -> None:
    assert_type(await client.run(resize, payload), Size)
    await client.submit(measure, payload)
    assert_type(await resize(ctx, payload), Size)
    assert_type(count(payload), int)
