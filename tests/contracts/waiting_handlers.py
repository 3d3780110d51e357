"""Handlers that wait, in the three kinds; a module, since child processes import it.

Each call of a step's function appends a line to the file that the payload names: what was paid.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from jobwire import App, Context, SignalTimeout, SyncContext
from jobwire.job.retry import fixed

QUEUE = "waiting"
app = App(QUEUE)
KINDS = ("async", "thread", "process")


class Work(msgspec.Struct):
    path: str
    sleep_s: float = 0
    """Sleep for this long after the first step."""
    signal: str = ""
    """Wait for this signal."""
    timeout_s: float = 3600
    children: list[str] = []
    """Children with these keys; one named `bad` fails."""
    swallow: bool = False
    """Go on after a suspending call."""


class Approval(msgspec.Struct):
    by: str


def pay(path: str, name: str) -> str:
    with Path(path).open("a") as file:
        file.write(f"{name}\n")
    return name


def paid(path: str | Path) -> list[str]:
    file = Path(path)
    return file.read_text().split() if file.exists() else []


@app.handler("render", uses={"durable"})
async def render(ctx: Context) -> str:
    if ctx.payload["key"] == "bad":
        raise ValueError("a bad child")
    return pay(ctx.payload["path"], f"render-{ctx.payload['key']}")


@app.handler("async", retries=2, backoff=fixed(0), uses={"durable"})
async def waiting(ctx: Context[Work]) -> list[Any]:
    work, found = ctx.payload, list[Any]()
    found.append(await ctx.step("one", pay, work.path, "one"))
    try:
        if work.sleep_s:
            await ctx.sleep(work.sleep_s)
        if work.signal:
            try:
                found.append(
                    (await ctx.wait_for_signal(work.signal, Approval, timeout_s=work.timeout_s)).by
                )
            except SignalTimeout:
                found.append("timeout")
        if work.children:
            made = [
                await ctx.submit(render, {"path": work.path, "key": key}, key=key)
                for key in work.children
            ]
            found += await ctx.gather(*made)
    except BaseException:
        if not work.swallow:
            raise
        pay(work.path, "swallowed")
        return ["swallowed"]
    finally:
        pay(work.path, "finally")
    found.append(await ctx.step("two", pay, work.path, "two"))
    return found


def waiting_in_def(ctx: SyncContext[Work]) -> list[Any]:
    work, found = ctx.payload, list[Any]()
    found.append(ctx.step("one", pay, work.path, "one"))
    try:
        if work.sleep_s:
            ctx.sleep(work.sleep_s)
        if work.signal:
            try:
                value = ctx.wait_for_signal(work.signal, Approval, timeout_s=work.timeout_s)
                found.append(value.by)
            except SignalTimeout:
                found.append("timeout")
        if work.children:
            made = [
                ctx.submit(render, {"path": work.path, "key": key}, key=key)
                for key in work.children
            ]
            found += ctx.gather(*made)
    except BaseException:
        if not work.swallow:
            raise
        pay(work.path, "swallowed")
        return ["swallowed"]
    finally:
        pay(work.path, "finally")
    found.append(ctx.step("two", pay, work.path, "two"))
    return found


app.handler("thread", retries=2, backoff=fixed(0), uses={"durable"})(waiting_in_def)
app.handler("process", retries=2, backoff=fixed(0), process=True, uses={"durable"})(waiting_in_def)


@app.handler("async-unanswered", retries=2, backoff=fixed(0), uses={"durable"})
async def unanswered(ctx: Context) -> None:
    await ctx.wait_for_signal("go", timeout_s=1)


def unanswered_in_def(ctx: SyncContext) -> None:
    ctx.wait_for_signal("go", timeout_s=1)


app.handler("thread-unanswered", retries=2, backoff=fixed(0), uses={"durable"})(unanswered_in_def)
app.handler("process-unanswered", retries=2, backoff=fixed(0), process=True, uses={"durable"})(
    unanswered_in_def
)
