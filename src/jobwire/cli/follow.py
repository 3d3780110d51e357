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
from jobwire.cli.formatting import ending, short_id, style_of, traceback
from jobwire.client import AsyncClient, ClientError, Job, TimedOut

if TYPE_CHECKING:
    from jobwire.cli.live import Screen

_TICK_S: Final = 0.2
_HINT_AFTER_S: Final = 2.0


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
            hinting = group.create_task(_hint(client, job.task, view, screen))
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


async def _hint(client: AsyncClient, task: str, view: EventView, screen: "Screen") -> None:
    """Print once if a waiting job has no worker."""
    await asyncio.sleep(_HINT_AFTER_S)
    if view.status == "queued":
        with contextlib.suppress(ClientError):
            known = await client.task(task)
            if known is None or not known.live:
                app = "" if payload.member(task) else " module:app"
                note = f"no worker has this task; start one: {output.program()} worker{app}"
                screen.show(view, [Piece("note", note)])


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
