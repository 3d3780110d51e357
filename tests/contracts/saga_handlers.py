"""Handlers whose steps fail, in the three kinds; a module, since child processes import it.

Each call of a step's function appends a line to the file that the payload names: what was paid.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from jobwire import App, Context, SyncContext
from jobwire.job.retry import fixed

QUEUE = "sagas"
app = App(QUEUE)
KINDS = ("async", "thread", "process")


class Declined(Exception):
    """Has more than its text."""

    def __init__(self, cents: int, *, bank: str) -> None:
        super().__init__(f"{bank} declines {cents}")
        self.cents, self.bank = cents, bank


class Work(msgspec.Struct):
    path: str
    once: bool = False
    """The failing step may run only once."""
    crash: int = 0
    """How many attempts end with an error that has nothing to do with the step."""
    uncaught: int = 0
    """How many attempts let the error of the step pass."""
    cause: bool = False
    """They raise another error from it."""


def paid(path: str | Path) -> list[str]:
    file = Path(path)
    return file.read_text().split() if file.exists() else []


def pay(path: str, name: str, fails: bool = False) -> str:
    with Path(path).open("a") as file:
        file.write(f"{name}\n")
    if fails:
        raise Declined(500, bank="first")
    return name


def charge(work: Work) -> str:
    fails = not work.uncaught or paid(work.path).count("charge") < work.uncaught
    return pay(work.path, "charge", fails)


def outcome(error: Declined) -> list[Any]:
    return [str(error), error.cents, error.bank]


@app.handler("async", retries=3, backoff=fixed(0), uses={"durable"})
async def saga(ctx: Context[Work]) -> Any:
    work = ctx.payload
    step = ctx.step_once if work.once else ctx.step
    try:
        return await step("charge", charge, work)
    except Declined as error:
        if ctx.attempt <= work.uncaught:
            if work.cause:
                raise RuntimeError("no payment") from error
            raise
        found = outcome(error)
    await ctx.step("refund", pay, work.path, "refund")
    await ctx.wait_for_signal("go")
    if ctx.attempt <= work.crash:
        raise RuntimeError("something else")
    return [*found, await ctx.step("mail", pay, work.path, "mail")]


def saga_in_def(ctx: SyncContext[Work]) -> Any:
    work = ctx.payload
    step = ctx.step_once if work.once else ctx.step
    try:
        return step("charge", charge, work)
    except Declined as error:
        if ctx.attempt <= work.uncaught:
            if work.cause:
                raise RuntimeError("no payment") from error
            raise
        found = outcome(error)
    ctx.step("refund", pay, work.path, "refund")
    ctx.wait_for_signal("go")
    if ctx.attempt <= work.crash:
        raise RuntimeError("something else")
    return [*found, ctx.step("mail", pay, work.path, "mail")]


app.handler("thread", retries=3, backoff=fixed(0), uses={"durable"})(saga_in_def)
app.handler("process", retries=3, backoff=fixed(0), process=True, uses={"durable"})(saga_in_def)
