"""`jobwire top`: all systems, the workers and the newest jobs, live."""

import time
from typing import TYPE_CHECKING, Final

import click

from jobwire.cli import options, output, sanitize
from jobwire.cli.program import RETRY_S, with_client
from jobwire.text import plural

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from jobwire.api.fleet import Stats, WorkerInfo
    from jobwire.api.job_queues import JobQueueInfo
    from jobwire.api.overview import Overview, SystemRow
    from jobwire.client import AsyncClient, JobLine

_PERIOD_S: Final = 2.0
_MIN_WIDTH_FOR_IDS: Final = 60
_MAX_ROWS: Final = 12
_MAX_UNREAD: Final = 3
_BARS: Final = " ▁▂▃▄▅▆▇█"


@click.command()
@options.as_json
@options.data_dir
def command() -> None:
    """Show all systems, the workers and the newest jobs, live; Ctrl-C ends it. In a pipe: one JSON
    object.

    \b
    Examples:
      jobwire top
      jobwire top --json | jq .now.waiting
    """
    if output.wants_json():
        with_client(_print_once)
        return
    try:
        with_client(_live)
    except KeyboardInterrupt:
        return


async def _print_once(client: "AsyncClient") -> None:
    import msgspec

    stats, workers = await client.stats(), await client.workers()
    overview = await client.overview()
    output.json_line(
        {
            **msgspec.to_builtins(stats),
            "systems": msgspec.to_builtins(overview.systems),
            "workers": msgspec.to_builtins(workers),
        }
    )


async def _live(client: "AsyncClient") -> None:
    import asyncio

    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(highlight=False), screen=True, auto_refresh=False) as live:
        while True:
            stats, workers = await client.stats(), await client.workers()
            overview, jobs = await client.overview(), await _newest(client)
            client.patience_s = RETRY_S
            now_ms, width = time.time() * 1000, live.console.width
            content = render(stats, workers, jobs, now_ms, width, overview)
            live.update(content, refresh=True)
            await asyncio.sleep(_PERIOD_S)


async def _newest(client: "AsyncClient") -> "list[JobLine]":
    """The newest jobs; none of a gateway that does not serve jobs."""
    from jobwire.client import NotFound

    try:
        return (await client.list(limit=12)).jobs
    except NotFound:
        return []


def render(
    stats: "Stats",
    workers: "list[WorkerInfo]",
    jobs: "list[JobLine]",
    now_ms: float,
    width: int,
    overview: "Overview | None" = None,
) -> "Group":
    """Return the content for a screen of this width."""
    from rich.console import Group
    from rich.text import Text

    from jobwire.cli.formatting import duration, progress, short_id, style_of

    worker_grid = _grid(6)
    for worker in workers:
        slots = (
            f"{len(worker.running)}/{worker.slots}" if worker.slots else str(len(worker.running))
        )
        _add_row(
            worker_grid,
            sanitize.line(worker.name),
            slots,
            f"{duration(worker.heartbeat_age_ms)} ago",
            _queues(worker),
            " ".join(sorted({sanitize.line(slot.task or "…") for slot in worker.running})),
            Text(
                "missing: " + ", ".join(sanitize.line(missing.part) for missing in worker.lacks)
                if worker.lacks
                else "",
                "yellow",
            ),
        )
    has_ids = width >= _MIN_WIDTH_FOR_IDS
    job_grid = _grid(5 if has_ids else 4)
    for job in jobs:
        style = style_of(job.status)
        _add_row(
            job_grid,
            Text(f"{style.shape} {style.word}", style.colour),
            sanitize.line(job.task),
            *([short_id(job.job_id)] if has_ids else []),
            duration(now_ms - job.created_ts),
            progress(job),
        )
    return Group(
        Text(summary(stats, workers), "bold"),
        *[Text(line, "yellow", no_wrap=True) for line in unread(overview)],
        Text(last_hour(stats)),
        Text(bars([minute.done for minute in stats.minutes]), "green", no_wrap=True),
        Text(""),
        *_systems(overview, width),
        worker_grid if workers else Text("No worker. Start one: jobwire worker module:app"),
        Text(""),
        job_grid if jobs else Text("No jobs yet. Try: jobwire submit chat hello --follow"),
    )


def _systems(overview: "Overview | None", width: int) -> "list[Table | Text]":
    """One line for each system and queue, where there are several; without wire and age on a
    narrow screen."""
    from rich.text import Text

    from jobwire.cli.formatting import duration

    if overview is None:
        return []
    # Of the system `jobs`, its queues are listed below it if there are several.
    rows: list[tuple[str, str, int, SystemRow | JobQueueInfo]] = []
    for system in sorted(overview.systems, key=lambda row: row.system == "queues"):
        wire = system.wire if system.wire != system.name else ""
        rows.append((sanitize.line(system.name), wire, system.error, system))
        if len(system.queues) > 1:
            rows += [(f"  {sanitize.line(each.name)}", "", 0, each) for each in system.queues]
    if len(rows) < 2 and not overview.unavailable:
        return []
    wide = width >= _MIN_WIDTH_FOR_IDS
    grid = _grid(7 if wide else 5)
    shown = rows[:_MAX_ROWS]
    for name, wire, failed, row in shown:
        oldest = row.oldest_waiting_ms
        age = f"oldest {duration(oldest)}" if oldest is not None else ""
        _add_row(
            grid,
            name,
            *([wire] if wide else []),
            f"{row.waiting} waiting",
            *([age] if wide else []),
            f"{row.running} running",
            _taken_by(row),
            Text(f"{failed} failed", "red") if failed else "",
        )
    lines: list[Table | Text] = [grid]
    lines += [
        Text(sanitize.line(f"{each.system}: {each.detail}"), "red") for each in overview.unavailable
    ]
    if further := len(rows) - len(shown) + overview.left_out:
        lines.append(Text(f"and {plural(further, 'further queue')}", "dim"))
    return [*lines, Text("")]


def unread(overview: "Overview | None") -> list[str]:
    """The queues of both wires in which jobs wait and that no worker reads."""
    from jobwire.cli.formatting import unread_queue

    systems = overview.systems if overview is not None else []
    queues = [queue for system in systems for queue in system.queues or [system]]
    return [
        unread_queue(queue.name, queue.waiting, queue.oldest_waiting_ms)
        for queue in queues
        if queue.waiting and queue.workers == 0 and not queue.paused
    ][:_MAX_UNREAD]


def _taken_by(row: "SystemRow | JobQueueInfo") -> "Text | str":
    """Why its waiting jobs are not started, if they are not."""
    from rich.text import Text

    if row.paused:
        return Text("paused", "yellow")
    return Text("no worker", "yellow") if row.workers == 0 and row.waiting else ""


def _queues(worker: "WorkerInfo") -> str:
    """The queues of its process on all wires, the first of each wire by name."""
    by_wire: dict[str, list[str]] = {}
    if not worker.serves and worker.wire != "streams":
        by_wire[worker.wire] = list(worker.queues) or [""]
    for served in worker.serves:
        by_wire.setdefault(served.wire, []).append(served.queue)
    return ", ".join(
        sanitize.line(f"{wire}: {queues[0]}" + (f" +{len(queues) - 1}" if queues[1:] else ""))
        for wire, queues in by_wire.items()
    )


def _add_row(grid: "Table", *cells: "str | Text") -> None:
    """Add cells as plain text: text of others is not parsed as markup."""
    from rich.text import Text

    grid.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))


def _grid(columns: int) -> "Table":
    """Return a table whose cells have one line each, cut off on a narrow screen."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    for _ in range(columns):
        grid.add_column(no_wrap=True, overflow="ellipsis")
    return grid


def summary(stats: "Stats", workers: "list[WorkerInfo]") -> str:
    """Describe the queue in one line: waiting jobs, age of the oldest, running jobs."""
    from jobwire.cli.formatting import duration

    now = stats.now
    if not now.waiting:
        parts = ["No jobs are waiting"]
        parts += [f"{now.running} running"] * bool(now.running)
        parts += [f"{now.delayed} delayed"] * bool(now.delayed)
        return ", ".join(parts) + "."
    oldest = f", oldest {duration(now.oldest_waiting_ms)}" if now.oldest_waiting_ms else ""
    running = f"{now.running} running" if workers else "no worker"
    return f"{now.waiting} waiting{oldest}, {running}."


def last_hour(stats: "Stats") -> str:
    """Describe the last hour in one line: outcomes and duration."""
    from jobwire.cli.formatting import duration

    hour = stats.hour
    p90 = hour.duration_ms.p90
    took = f"  p90 {duration(p90)}" if p90 is not None else ""
    return (
        f"last hour: {hour.done} done, {hour.error} failed, {hour.canceled} canceled, "
        f"{hour.retried} retried{took}"
    )


def bars(counts: list[int]) -> str:
    """Return one bar character per count."""
    highest = max(counts, default=0)
    if not highest:
        return ""
    return "".join(_BARS[-(-count * (len(_BARS) - 1) // highest)] for count in counts)
