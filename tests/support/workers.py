"""Workers in a test's own loop: `started` returns when the worker runs, or raises its error."""

from __future__ import annotations

import asyncio

from jobwire.worker import Worker
from tests.support.wait import wait_until


async def started(worker: Worker) -> asyncio.Task[None]:
    """Run the worker; returns when it takes jobs, and raises its error if it fails."""
    running = asyncio.create_task(worker.run())
    await wait_until(lambda: worker.ready.is_set() or running.done(), "the worker to be ready")
    if running.done():
        running.result()
    return running


async def ended(running: asyncio.Task[None]) -> None:
    """Wait for a worker that was asked to stop; `wait_for` hangs if it ignores the cancel."""
    await wait_until(running.done, "the worker to stop")
    running.result()


async def stopped(worker: Worker, running: asyncio.Task[None]) -> None:
    """Let the worker release its jobs and stop."""
    worker.stop()
    worker.stop()
    await ended(running)
