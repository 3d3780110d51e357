"""Handlers of the tests of children; a child process imports them."""

from __future__ import annotations

from jobwire import Context
from jobwire.job.messages import Children, Json


async def child(ctx: Context[str]) -> str:
    if ctx.payload != "good":
        raise ValueError("not good")
    return ctx.payload


def seen(ctx: Context, children: Children) -> Json:
    return {
        "values": dict(children.values),
        "ignored": {**children.ignored},
        "failed": {**children.failed},
        "pending": [*children.pending],
        "priority": ctx.job.priority,
        "jobId": ctx.job.opts.get("jobId"),
    }


async def in_a_coroutine(ctx: Context) -> Json:
    return seen(ctx, await ctx.children())


def in_a_thread(ctx: Context) -> Json:
    return seen(ctx, ctx.children().result())


async def in_a_process(ctx: Context) -> Json:
    return seen(ctx, await ctx.children())
