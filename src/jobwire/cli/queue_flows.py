"""Flows and schedulers of BullMQ queues as verbs of `jobwire queue`, over HTTP."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

from jobwire.cli import options, output, sanitize
from jobwire.cli.exits import CliExit, Exit
from jobwire.cli.program import with_queue
from jobwire.cli.queue_bullmq import json_argument, show_next_page

if TYPE_CHECKING:
    from jobwire.client import FlowJobInfo, SchedulerInfo
    from jobwire.job.messages import Json


@click.command()
@click.argument("queue")
@click.argument("job_id", metavar="ID")
@click.option("--depth", type=click.IntRange(1, 50), help="Number of levels to show.")
@click.option("--width", type=click.IntRange(1, 200), help="Number of children to show per job.")
@options.common
def flow(queue: str, job_id: str, depth: int | None, width: int | None) -> None:
    """Show a job of a BullMQ queue with its parent and its children."""
    found = with_queue(queue, lambda opened: opened.flow(job_id, depth=depth, width=width))
    if output.wants_json():
        output.json_line(found)
        return
    if found.parent is not None:
        click.echo(f"parent: {_job(found.parent)}")
    for line in _tree(found.job, 0):
        click.echo(line)


def _tree(job: "FlowJobInfo", level: int) -> Iterator[str]:
    indent = "  " * level
    yield indent + _job(job)
    for child in job.children:
        yield from _tree(child, level + 1)
    counts = job.counts
    hidden = counts.completed + counts.failed + counts.ignored + counts.pending - len(job.children)
    if hidden > 0:
        yield f"{indent}  … {hidden} more"


def _job(job: "FlowJobInfo") -> str:
    state = f"{job.state}, deleted" if job.removed else job.state
    reason = f": {job.failed_reason[:80]}" if job.failed_reason else ""
    return sanitize.line(f"{job.name or '?'} ({job.queue} {job.id}) {state}{reason}")


@click.command()
@click.argument("queue")
@click.argument("flow", metavar="JSON")
@options.common
def add_flow(queue: str, flow: str) -> None:
    """Add a tree of jobs to BullMQ queues. JSON is as for Node's FlowProducer, @file or - for
    stdin."""
    given: Json = json_argument(flow, "the flow")
    if not isinstance(given, dict):
        raise CliExit('a flow is a JSON object: {"name": …, "children": […]}', Exit.USAGE)
    tree = given
    added = with_queue(queue, lambda opened: opened.add_flow(tree))
    output.result(added, f"{sanitize.line(added.id)}: added with {len(added.children)} children")


@click.command()
@click.argument("queue")
@click.option("--first", type=click.IntRange(0), default=0, help="How many schedulers to skip.")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True)
@options.common
def schedulers(queue: str, first: int, limit: int) -> None:
    """List the job schedulers of a BullMQ queue with their next runs."""
    page = with_queue(queue, lambda opened: opened.schedulers(first=first, limit=limit))
    output.listing(page.schedulers, ("id", "name", "schedule", "next run", "made"), _row)
    show_next_page("schedulers", page.total, page.next)


def _row(scheduler: "SchedulerInfo") -> tuple[str, ...]:
    from jobwire.cli.formatting import duration

    repeat = scheduler.repeat
    schedule = f"{repeat.pattern or ''} {repeat.tz or ''}".strip()
    if repeat.every:
        schedule = f"every {duration(repeat.every)}"
    following = "ended" if scheduler.next is None else f"in {_until(scheduler.next)}"
    cells = (scheduler.id, scheduler.name, schedule, following, str(scheduler.made))
    return tuple(map(sanitize.line, cells))


def _until(ts: int) -> str:
    from jobwire.cli.formatting import duration

    return duration(ts - time.time() * 1000)


@click.command()
@click.argument("queue")
@click.argument("scheduler_id", metavar="ID")
@click.argument("name")
@click.argument("data", required=False)
@click.option("--every-ms", type=click.IntRange(1), help="The interval of the jobs.")
@click.option("--cron", metavar="PATTERN", help="Five fields, or six with seconds in front.")
@click.option(
    "--tz",
    metavar="ZONE",
    help="The time zone of the pattern; without it that of the programs.",
)
@click.option("--limit", type=click.IntRange(1), help="Total number of jobs.")
@click.option("--opts", metavar="JSON", help="Options of the jobs, with BullMQ's names.")
@options.common
def schedule(
    queue: str,
    scheduler_id: str,
    name: str,
    data: str | None,
    every_ms: int | None,
    cron: str | None,
    tz: str | None,
    limit: int | None,
    opts: str | None,
) -> None:
    """Set a job scheduler of a BullMQ queue, new or changed."""
    if (every_ms is None) == (cron is None):
        raise CliExit("schedule: give either --every-ms or --cron", Exit.USAGE)
    given = {"every": every_ms, "pattern": cron, "tz": tz, "limit": limit}
    repeat = {member: value for member, value in given.items() if value is not None}
    template, options_json = json_argument(data, "data"), json_argument(opts, "--opts")
    made = with_queue(
        queue,
        lambda opened: opened.set_scheduler(scheduler_id, repeat, name, template, options_json),
    )
    text = "not set, no job is due before its end"
    if made.next is not None:
        text = f"the next job is due in {_until(made.next)}"
    output.result(made, f"{sanitize.line(made.id)}: {text}")


@click.command()
@click.argument("queue")
@click.argument("scheduler_id", metavar="ID")
@options.common
def unschedule(queue: str, scheduler_id: str) -> None:
    """Remove a job scheduler of a BullMQ queue."""
    with_queue(queue, lambda opened: opened.remove_scheduler(scheduler_id))
    removed = {"queue": queue, "id": scheduler_id, "removed": True}
    output.result(removed, f"{sanitize.line(scheduler_id)}: removed")


COMMANDS: Final = (flow, add_flow, schedulers, schedule, unschedule)
