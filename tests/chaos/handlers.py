"""The tasks of a chaos run. Each run records its begin and its end in a file outside the product:
one line in one write, before anything else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
import uuid
from collections.abc import Generator

from jobwire import App, Context
from jobwire.job.retry import fixed

app = App()

EFFECTS = "CHAOS_EFFECTS"
SLOTS = "CHAOS_SLOTS"


def _record(**what: object) -> None:
    line = json.dumps({**what, "at": time.time() * 1000}) + "\n"
    descriptor = os.open(os.environ[EFFECTS], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)


class Running:
    """One run: its name, and how many reports it has made."""

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.reported = 0


@contextlib.contextmanager
def running(ctx: Context, worker: str) -> Generator[Running]:
    """One run, from its first to its last line."""
    run = Running()
    slots, job = int(os.environ[SLOTS]), ctx.job
    _record(run=run.id, job=job.id, task=job.task, attempt=job.attempt, worker=worker, slots=slots)
    try:
        yield run
    finally:
        _record(run=run.id, reported=run.reported)


def fail_if_requested(ctx: Context) -> None:
    if ctx.attempt <= ctx.payload["fails"]:
        raise RuntimeError("this attempt was to fail")


@app.handler("work", backoff=fixed(0.05))
async def work(ctx: Context) -> dict[str, str]:
    with running(ctx, str(os.getpid())) as run:
        for number in range(ctx.payload["steps"]):
            await ctx.emit("step", {"run": run.id, "n": number})
            run.reported += 1
            await asyncio.sleep(ctx.payload["pause_s"])
        fail_if_requested(ctx)
        return {"run": run.id}


@app.handler("block", backoff=fixed(0.05))
async def block(ctx: Context) -> dict[str, str]:
    """Blocks the event loop between its reports."""
    with running(ctx, str(os.getpid())) as run:
        for number in range(ctx.payload["steps"]):
            await ctx.emit("step", {"run": run.id, "n": number})
            run.reported += 1
            time.sleep(ctx.payload["pause_s"])  # noqa: ASYNC251 - that is the fault
        fail_if_requested(ctx)
        return {"run": run.id}


@app.handler("thread", backoff=fixed(0.05))
def thread(ctx: Context) -> dict[str, str]:
    with running(ctx, str(os.getpid())) as run:
        return steps_of(ctx, run)


@app.handler("process", process=True, backoff=fixed(0.05))
def process(ctx: Context) -> dict[str, str]:
    # A child of its own, which is killed without a last line: it is a worker with one slot.
    with running(ctx, f"child-{os.getpid()}") as run:
        return steps_of(ctx, run)


def steps_of(ctx: Context, run: Running) -> dict[str, str]:
    for number in range(ctx.payload["steps"]):
        ctx.emit("step", {"run": run.id, "n": number})
        run.reported += 1
        time.sleep(ctx.payload["pause_s"])
    fail_if_requested(ctx)
    return {"run": run.id}


@app.handler("poison")
async def poison(ctx: Context) -> None:
    """Kills its worker."""
    with running(ctx, str(os.getpid())):
        os._exit(70)


@app.cron("* * * * *")
@app.handler("tick")
async def tick(ctx: Context) -> None:
    with running(ctx, str(os.getpid())):
        pass
