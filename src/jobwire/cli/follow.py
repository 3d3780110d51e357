"""Follow one job to its end: live on a terminal, as JSON lines otherwise.

Shared by `submit --follow` and `watch`. The exit code is that of the job's outcome. Stopping the
command does not stop the job.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from jobwire.cli import output, payload, sanitize
from jobwire.cli.event_view import EventView, Piece
from jobwire.cli.exits import Exit
from jobwire.cli.formatting import ending, short_id, style_of, traceback, unread_queue
from jobwire.client import AsyncClient, ClientError, Job, TimedOut

if TYPE_CHECKING:
    from jobwire.cli.live import Screen

_TICK_S: Final = 0.2
_HINT_AFTER_S: Final = 2.0
_HINT_AGAIN_S: Final = 10.0


async def follow(client: AsyncClient, job: Job, *, timeout_s: float | None) -> Exit:
    """Print the job's events from the first to the last, then its outcome."""
    as_json = output.wants_json()
    try:
        async with asyncio.timeout(timeout_s):
            text_printed = await (_json_lines(client, job) if as_json else _live(client, job))
            ended = await client.get(job.job_id)
    except TimeoutError:
        assert timeout_s is not None
        raise TimedOut(job.job_id, timeout_s) from None
    if as_json:
        output.json_line(ended)
    else:
        _show_end(ended, text_printed=text_printed)
    return Exit.OK if ended.status == "done" else Exit.JOB_FAILED


async def _json_lines(client: AsyncClient, job: Job) -> bool:
    async for event in client.events(job.job_id):
        output.json_line(event)
    return True


async def _live(client: AsyncClient, job: Job) -> bool:
    """Return whether the job's tokens were printed."""
    from rich.console import Console

    from jobwire.cli.live import Screen

    view = EventView()
    with Screen(Console(highlight=False), sanitize.line(job.task), job.job_id) as screen:
        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(_tick(screen.tick))
            hinting = group.create_task(_hint(client, job, view, screen))
            async with contextlib.aclosing(client.events(job.job_id)) as events:
                async for event in events:
                    screen.show(view, view.take(event))
            ticking.cancel()
            hinting.cancel()
    return view.text_printed


async def _tick(tick: Callable[[], None]) -> None:
    while True:
        tick()
        await asyncio.sleep(_TICK_S)


async def _hint(client: AsyncClient, job: Job, view: EventView, screen: "Screen") -> None:
    """Print once why a waiting job is not started."""
    pause_s = _HINT_AFTER_S
    while True:
        await asyncio.sleep(pause_s)
        pause_s = _HINT_AGAIN_S
        if view.status == "queued":
            with contextlib.suppress(ClientError):
                if note := await _why_waiting(client, job):
                    screen.show(view, [Piece("note", note)])
                    return


async def _why_waiting(client: AsyncClient, job: Job) -> str:
    """Why no worker starts it; empty if one will."""
    app = "" if payload.member(job.task) else " module:app"
    start = f"start one: {output.program()} worker{app}"
    queues = {queue.name: queue for queue in await client.queues()}
    if (queue := queues.get(job.queue)) is not None:
        if queue.paused:
            return f"queue {sanitize.line(queue.name)} is paused"
        if not queue.workers:
            found = unread_queue(queue.name, queue.waiting, queue.oldest_waiting_ms)
            return f"{found}; {start}"
    known = await client.task(job.task)
    return "" if known is not None and known.live else f"no worker has this task; {start}"


def _show_end(job: Job, *, text_printed: bool) -> None:
    """Print the result, unless its tokens were printed, and the outcome."""
    if job.result is not None and not text_printed:
        print(sanitize.pretty(job.result))
    if trace := traceback(job):
        output.info(trace)
    style = style_of(job.status)
    state = output.coloured(f"{style.shape} {style.word}", style.colour)
    output.info(
        f"{state}  {sanitize.line(job.task)}  {short_id(job.job_id)}  {ending(job)}".rstrip()
    )
