"""`jobwire top`: the queue, the workers and the newest jobs, as they change."""

import time
from typing import TYPE_CHECKING, Final

import click

from jobwire.cli import options, output

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from jobwire.client import AsyncClient
    from jobwire.client.messages import JobLine, Stats, WorkerInfo

_EVERY_S: Final = 2.0
_WIDE: Final = 60
_BARS: Final = " ▁▂▃▄▅▆▇█"


@click.command()
@options.as_json
@options.data_dir
@click.pass_context
def command(context: click.Context, as_json: bool, data_dir: str | None) -> None:
    """Watch the whole queue; Ctrl-C ends it. In a pipe: one look, as a JSON object.

    \b
    Examples:
      jobwire top
      jobwire top --json | jq .now.waiting
    """
    from jobwire.cli.program import with_client

    if output.wants_json(as_json):
        with_client(context, data_dir, _one_look)
        return
    try:
        with_client(context, data_dir, _live)
    except KeyboardInterrupt:
        return


async def _one_look(client: "AsyncClient") -> None:
    import msgspec

    from jobwire.cli.follow import json_line

    stats, workers = await client.stats(), await client.workers()
    json_line({**msgspec.to_builtins(stats), "workers": msgspec.to_builtins(workers)})


async def _live(client: "AsyncClient") -> None:
    import asyncio

    from rich.console import Console
    from rich.live import Live

    from jobwire.cli.program import PATIENCE_S

    with Live(console=Console(highlight=False), screen=True, auto_refresh=False) as live:
        while True:
            stats, workers = await client.stats(), await client.workers()
            page = await client.list(limit=12)
            client.patience_s = PATIENCE_S
            drawn = render(stats, workers, page.jobs, time.time() * 1000, live.console.width)
            live.update(drawn, refresh=True)
            await asyncio.sleep(_EVERY_S)


def render(
    stats: "Stats", workers: "list[WorkerInfo]", jobs: "list[JobLine]", now_ms: float, width: int
) -> "Group":
    """What is on a screen of this width."""
    from rich.console import Group
    from rich.text import Text

    from jobwire.cli import sanitize
    from jobwire.cli.formatting import STATUS_STYLE, duration, progress, short_id

    fleet = _grid(5)
    for worker in workers:
        slots = (
            f"{len(worker.running)}/{worker.slots}" if worker.slots else str(len(worker.running))
        )
        _add_row(
            fleet,
            sanitize.line(worker.name),
            slots,
            f"{duration(worker.heartbeat_age_ms)} ago",
            " ".join(sorted({sanitize.line(slot.task or "…") for slot in worker.running})),
            Text(
                "lacks " + ", ".join(sanitize.line(lack.part) for lack in worker.lacks)
                if worker.lacks
                else "",
                "yellow",
            ),
        )
    has_ids = width >= _WIDE
    newest = _grid(5 if has_ids else 4)
    for job in jobs:
        look = STATUS_STYLE[job.status]
        _add_row(
            newest,
            Text(f"{look.shape} {look.word}", look.colour),
            sanitize.line(job.task),
            *([short_id(job.job_id)] if has_ids else []),
            duration(now_ms - job.created_ts),
            progress(job),
        )
    return Group(
        Text(sentence(stats, workers), "bold"),
        Text(hour(stats)),
        Text(bars([minute.done for minute in stats.minutes]), "green", no_wrap=True),
        Text(""),
        fleet if workers else Text("No worker. Start one: jobwire worker module:app"),
        Text(""),
        newest if jobs else Text("No job yet. Try: jobwire submit chat hello --follow"),
    )


def _add_row(grid: "Table", *cells: "str | Text") -> None:
    """Cells are text as it is: of what others wrote, nothing is markup."""
    from rich.text import Text

    grid.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))


def _grid(columns: int) -> "Table":
    """Cells in a line each, cut off where the screen is too narrow."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    for _ in range(columns):
        grid.add_column(no_wrap=True, overflow="ellipsis")
    return grid


def sentence(stats: "Stats", workers: "list[WorkerInfo]") -> str:
    """The first question, answered in words: is anyone taking these, and how old is the oldest?"""
    from jobwire.cli.formatting import duration

    now = stats.now
    if not now.waiting:
        calm = "Nothing is waiting" if now.running or now.delayed else "Quiet. Nothing is waiting"
        more = [f"{now.running} running"] * bool(now.running)
        more += [f"{now.delayed} to come"] * bool(now.delayed)
        return ", ".join([calm, *more]) + "."
    oldest = f", oldest {duration(now.oldest_waiting_ms)}" if now.oldest_waiting_ms else ""
    taking = f"{now.running} running" if workers else "nobody is taking them"
    return f"{now.waiting} waiting{oldest}, {taking}."


def hour(stats: "Stats") -> str:
    """The last hour in a line: how many ended how, and how long they took."""
    from jobwire.cli.formatting import duration

    whole = stats.hour
    p90 = whole.duration_ms.p90
    took = f"  9 of 10 within {duration(p90)}" if p90 is not None else ""
    return (
        f"last hour: {whole.done} done, {whole.error} failed, {whole.canceled} canceled, "
        f"{whole.retried} retried{took}"
    )


def bars(counts: list[int]) -> str:
    """A bar for each count."""
    most = max(counts, default=0)
    if not most:
        return ""
    return "".join(_BARS[-(-count * (len(_BARS) - 1) // most)] for count in counts)
