"""An App with a lifespan whose handlers run in child processes, which import it from here."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobwire.worker import App, Context

LEFT_FILE = "JOBWIRE_TEST_LEFT_FILE"


@dataclass
class ProcessState:
    pid: int
    loop: asyncio.AbstractEventLoop
    jobs: list[str] = field(default_factory=list[str])


@contextlib.asynccontextmanager
async def lifespan() -> AsyncGenerator[ProcessState]:
    yield ProcessState(os.getpid(), asyncio.get_running_loop())
    _note_left()


def _note_left() -> None:
    with Path(os.environ[LEFT_FILE]).open("a") as file:
        file.write(f"{os.getpid()}\n")


app = App(lifespan=lifespan)


@app.handler("async", process=True)
async def in_loop(ctx: Context[dict[str, Any], ProcessState]) -> list[object]:
    assert asyncio.get_running_loop() is ctx.state.loop
    return _seen(ctx)


@app.handler("sync", process=True)
def in_main_thread(ctx: Context[dict[str, Any], ProcessState]) -> list[object]:
    return _seen(ctx)


def _seen(ctx: Context[dict[str, Any], ProcessState]) -> list[object]:
    ctx.state.jobs.append(ctx.job.task)
    return [os.getpid(), ctx.state.pid, list(ctx.state.jobs)]
