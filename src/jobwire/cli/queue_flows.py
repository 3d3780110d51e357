"""Flows and schedulers of BullMQ queues as verbs of `jobwire queue`, over HTTP."""

import time
from collections.abc import Iterator

import click

from jobwire.cli import output, payload, sanitize
from jobwire.cli.exits import CliExit, Exit
from jobwire.cli.follow import json_line
from jobwire.cli.formatting import duration
from jobwire.cli.queue_bullmq import json_value, with_queue
from jobwire.client import FlowJobInfo, SchedulerInfo
from jobwire.job.messages import Json


def flow(
    context: click.Context,
    queue: str,
    job_id: str,
    depth: int | None,
    width: int | None,
    as_json: bool,
    data_dir: str | None,
) -> None:
    """Show a job's tree."""
    found = with_queue(
        context, data_dir, queue, lambda opened: opened.flow(job_id, depth=depth, width=width)
    )
    if output.wants_json(as_json):
        json_line(found)
        return
    if found.parent is not None:
        click.echo(f"parent: {_job(found.parent)}")
    for line in _tree(found.job, 0):
        click.echo(line)


def _tree(job: FlowJobInfo, level: int) -> Iterator[str]:
    indent = "  " * level
    yield indent + _job(job)
    for child in job.children:
        yield from _tree(child, level + 1)
    counts = job.counts
    hidden = counts.completed + counts.failed + counts.ignored + counts.pending - len(job.children)
    if hidden > 0:
        yield f"{indent}  … {hidden} more"


def _job(job: FlowJobInfo) -> str:
    state = f"{job.state}, deleted" if job.removed else job.state
    reason = f": {job.failed_reason[:80]}" if job.failed_reason else ""
    return sanitize.line(f"{job.name or '?'} ({job.queue} {job.id}) {state}{reason}")


def add_flow(
    context: click.Context, queue: str, flow: str, as_json: bool, data_dir: str | None
) -> None:
    """Add a tree of jobs."""
    given: Json = json_value(payload.read(flow), "the flow")
    if not isinstance(given, dict):
        raise CliExit('a flow is a JSON object: {"name": …, "children": […]}', Exit.USAGE)
    tree = given
    added = with_queue(context, data_dir, queue, lambda opened: opened.add_flow(tree))
    if output.wants_json(as_json):
        json_line(added)
    else:
        click.echo(f"{sanitize.line(added.id)}: added with {len(added.children)} children")


def schedulers(
    context: click.Context,
    queue: str,
    first: int,
    limit: int,
    as_json: bool,
    data_dir: str | None,
) -> None:
    """List schedulers."""
    page = with_queue(
        context, data_dir, queue, lambda opened: opened.schedulers(first=first, limit=limit)
    )
    if output.wants_json(as_json):
        for scheduler in page.schedulers:
            json_line(scheduler)
        return
    rows = [("id", "name", "schedule", "next run", "made")]
    rows += [_row(scheduler, time.time() * 1000) for scheduler in page.schedulers]
    output.columns(rows)
    if page.next is not None:
        output.info(f"{page.total} schedulers; the next page: --first {page.next}")


def _row(scheduler: SchedulerInfo, now_ms: float) -> tuple[str, ...]:
    repeat = scheduler.repeat
    schedule = f"{repeat.get('pattern') or ''} {repeat.get('tz') or ''}".strip()
    if repeat.get("every"):
        schedule = f"every {duration(repeat['every'])}"
    following = "ended" if scheduler.next is None else f"in {duration(scheduler.next - now_ms)}"
    cells = (scheduler.id, scheduler.name, schedule, following, str(scheduler.made))
    return tuple(map(sanitize.line, cells))


def schedule(
    context: click.Context,
    queue: str,
    scheduler_id: str,
    name: str,
    data: str | None,
    every_ms: int | None,
    cron: str | None,
    tz: str | None,
    limit: int | None,
    opts: str | None,
    as_json: bool,
    data_dir: str | None,
) -> None:
    """Set a scheduler."""
    given = {"every": every_ms, "pattern": cron, "tz": tz, "limit": limit}
    repeat = {member: value for member, value in given.items() if value is not None}
    template = json_value(payload.read(data), "data")
    options = json_value(payload.read(opts), "--opts")
    made = with_queue(
        context,
        data_dir,
        queue,
        lambda opened: opened.set_scheduler(scheduler_id, repeat, name, template, options),
    )
    if output.wants_json(as_json):
        json_line(made)
    elif made.next is None:
        click.echo(f"{sanitize.line(made.id)}: not set, no job is due before its end")
    else:
        due = duration(made.next - time.time() * 1000)
        click.echo(f"{sanitize.line(made.id)}: the next job is due in {due}")


def unschedule(
    context: click.Context, queue: str, scheduler_id: str, as_json: bool, data_dir: str | None
) -> None:
    """Remove a scheduler."""
    with_queue(context, data_dir, queue, lambda opened: opened.remove_scheduler(scheduler_id))
    if output.wants_json(as_json):
        json_line({"queue": queue, "id": scheduler_id, "removed": True})
    else:
        click.echo(f"{sanitize.line(scheduler_id)}: removed")
