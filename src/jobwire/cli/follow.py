"""Watching one job to its end: live on a terminal, as JSON lines otherwise.

Shared by `submit --follow` and `watch`. The exit code says how the job ended; whoever stops
watching stops nothing else.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from jobwire.cli import output, sanitize
from jobwire.cli.event_view import EventView, Piece
from jobwire.cli.exits import Exit
from jobwire.cli.formatting import STATUS_STYLE, ending, short_id
from jobwire.client import AsyncClient, ClientError, Job, TimedOut

if TYPE_CHECKING:
    from jobwire.cli.live import Screen

_TICK_S: Final = 0.2
_LONG_S: Final = 2.0


async def follow(client: AsyncClient, job: Job, *, as_json: bool, timeout_s: float | None) -> Exit:
    """Watch a job from its first event to its last, then say how it ended."""
    try:
        async with asyncio.timeout(timeout_s):
            told = await (_json_lines(client, job) if as_json else _live(client, job))
            ended = await client.get(job.job_id)
    except TimeoutError:
        assert timeout_s is not None
        raise TimedOut(job.job_id, timeout_s) from None
    if as_json:
        json_line(ended)
    else:
        show_end(ended, told_text=told)
    return Exit.OK if ended.status == "done" else Exit.JOB_FAILED


async def _json_lines(client: AsyncClient, job: Job) -> bool:
    async for event in client.events(job.job_id):
        json_line(event)
    return True


async def _live(client: AsyncClient, job: Job) -> bool:
    """Answers whether the job's text was printed as it came."""
    from rich.console import Console

    from jobwire.cli.live import Screen

    story = EventView()
    with Screen(Console(highlight=False), sanitize.line(job.task), job.job_id) as screen:
        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(_tick(screen.tick))
            wondering = group.create_task(_wonder(client, job.task, story, screen))
            async with contextlib.aclosing(client.events(job.job_id)) as events:
                async for event in events:
                    screen.show(story, story.take(event))
            ticking.cancel()
            wondering.cancel()
    return story.told_text


async def _tick(tick: Callable[[], None]) -> None:
    while True:
        tick()
        await asyncio.sleep(_TICK_S)


async def _wonder(client: AsyncClient, task: str, story: EventView, screen: "Screen") -> None:
    """A job that waits for long may wait for nobody: say so, once."""
    await asyncio.sleep(_LONG_S)
    if story.status == "queued":
        with contextlib.suppress(ClientError):
            known = await client.task(task)
            if known is None or not known.live:
                note = "no worker has this task; start one: jobwire worker module:app"
                screen.show(story, [Piece("note", note)])


def json_line(answer: object) -> None:
    """One object on one line, with the names of the API."""
    print(sanitize.json_text(msgspec.json.encode(answer)), flush=True)


def show_end(job: Job, *, told_text: bool) -> None:
    """The result, unless its text was printed as it came; then how it ended."""
    if job.result is not None and not told_text:
        print(sanitize.pretty(job.result))
    look = STATUS_STYLE[job.status]
    state = output.coloured(f"{look.shape} {look.word}", look.colour)
    output.say(
        f"{state}  {sanitize.line(job.task)}  {short_id(job.job_id)}  {ending(job)}".rstrip()
    )
