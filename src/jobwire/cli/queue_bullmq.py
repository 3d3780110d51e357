"""The verbs of `jobwire queue` for BullMQ queues, over HTTP."""

import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click
import msgspec

from jobwire.cli import output, payload, sanitize
from jobwire.cli.exits import CliExit, Exit
from jobwire.cli.follow import json_line
from jobwire.cli.formatting import duration
from jobwire.cli.program import RETRY_S, each, with_client
from jobwire.client import AsyncClient, AsyncQueue, QueueEventInfo, QueueJobInfo, QueueStatus

T = TypeVar("T")
_COUNTED = ("waiting", "active", "delayed", "completed", "failed")


def ls(context: click.Context, as_json: bool, data_dir: str | None) -> None:
    """List the queues."""
    queues = with_client(context, data_dir, lambda client: client.bullmq_queues())
    if output.wants_json(as_json):
        for queue in queues:
            json_line(queue)
        return
    rows = [("queue", *_COUNTED, "oldest", "workers", "")]
    rows += [_row(queue) for queue in queues]
    output.columns(rows)


def _row(queue: QueueStatus) -> tuple[str, ...]:
    oldest = "" if queue.oldest_waiting_ms is None else duration(queue.oldest_waiting_ms)
    workers = "?" if queue.workers is None else str(queue.workers)
    counts = [str(queue.counts.get(state, 0)) for state in _COUNTED]
    return sanitize.line(queue.name), *counts, oldest, workers, "paused" if queue.paused else ""


def show(context: click.Context, queue: str, as_json: bool, data_dir: str | None) -> None:
    """Show one queue."""
    status = with_queue(context, data_dir, queue, lambda opened: opened.status())
    if output.wants_json(as_json):
        json_line(status)
        return
    facts = [("queue", status.name), ("paused", "yes" if status.paused else "no")]
    facts += [(state, str(count)) for state, count in status.counts.items()]
    facts += [("stalled", str(status.stalled)), ("schedulers", str(status.schedulers))]
    facts.append(("workers", "?" if status.workers is None else str(status.workers)))
    output.columns([(name, sanitize.line(value)) for name, value in facts])


def pause(context: click.Context, queue: str, as_json: bool, data_dir: str | None) -> None:
    """Pause a queue."""
    paused = with_queue(context, data_dir, queue, lambda opened: opened.pause())
    _show_paused(queue, paused, as_json)


def resume(context: click.Context, queue: str, as_json: bool, data_dir: str | None) -> None:
    """Resume a queue."""
    paused = with_queue(context, data_dir, queue, lambda opened: opened.resume())
    _show_paused(queue, paused, as_json)


def add(
    context: click.Context,
    queue: str,
    name: str,
    data: str | None,
    opts: str | None,
    as_json: bool,
    data_dir: str | None,
) -> None:
    """Add a job."""
    job = {"name": name, "data": json_value(payload.read(data), "data")}
    job["opts"] = json_value(payload.read(opts), "--opts")
    (added,) = with_queue(context, data_dir, queue, lambda opened: opened.add_many([job]))
    if output.wants_json(as_json):
        json_line(added)
    else:
        click.echo(f"{sanitize.line(added.id)}: {added.outcome}")


def jobs(
    context: click.Context,
    queue: str,
    state: str,
    first: int,
    limit: int,
    as_json: bool,
    data_dir: str | None,
) -> None:
    """List jobs."""
    page = with_queue(
        context, data_dir, queue, lambda opened: opened.jobs(state, first=first, limit=limit)
    )
    if output.wants_json(as_json):
        for listed in page.jobs:
            json_line(listed)
        return
    rows = [("id", "name", "state", "attempts", "reason")]
    for listed in page.jobs:
        reason = sanitize.line((listed.problem or listed.failed_reason or "")[:80])
        cells = (sanitize.line(listed.id), sanitize.line(listed.name), listed.state)
        rows.append((*cells, str(listed.attempts_made), reason))
    output.columns(rows)
    if page.next is not None:
        output.info(f"{page.total} jobs; the next page: --first {page.next}")


def job(
    context: click.Context, queue: str, job_id: str, as_json: bool, data_dir: str | None
) -> None:
    """Show a job with its log."""

    async def read(opened: AsyncQueue) -> tuple[QueueJobInfo, list[str]]:
        found = await opened.job(job_id)
        return found, (await opened.logs(job_id)).lines

    found, lines = with_queue(context, data_dir, queue, read)
    if output.wants_json(as_json):
        json_line(found)
        return
    click.echo(sanitize.pretty(msgspec.to_builtins(found)))
    for line in lines:
        click.echo(f"  {sanitize.line(line)}")


def retry(
    context: click.Context,
    queue: str,
    job_ids: tuple[str, ...],
    every: bool,
    as_json: bool,
    data_dir: str | None,
) -> int:
    """Run failed jobs again."""
    return _change(context, queue, job_ids, every, as_json, data_dir, "retry")


def promote(
    context: click.Context,
    queue: str,
    job_ids: tuple[str, ...],
    every: bool,
    as_json: bool,
    data_dir: str | None,
) -> int:
    """Let delayed jobs run now."""
    return _change(context, queue, job_ids, every, as_json, data_dir, "promote")


def drain(
    context: click.Context,
    queue: str,
    delayed: bool,
    yes: bool,
    as_json: bool,
    data_dir: str | None,
) -> None:
    """Delete what waits."""
    status = with_queue(context, data_dir, queue, lambda opened: opened.status())
    states = ("waiting", "prioritized", *(("delayed",) if delayed else ()))
    count = sum(status.counts.get(state, 0) for state in states)
    _confirm(f"Delete the {count} {' and '.join(states)} jobs of {queue}?", "drain", yes)
    deleted = with_queue(context, data_dir, queue, lambda opened: opened.drain(delayed=delayed))
    _show_count(queue, deleted, "deleted", as_json)


def clean(
    context: click.Context,
    queue: str,
    state: str,
    grace_ms: int,
    limit: int,
    yes: bool,
    as_json: bool,
    data_dir: str | None,
) -> None:
    """Delete jobs of a state."""
    status = with_queue(context, data_dir, queue, lambda opened: opened.status())
    count = status.counts.get(state, 0)
    _confirm(f"Delete up to {min(count, limit or count)} {state} jobs of {queue}?", "clean", yes)
    deleted = with_queue(
        context,
        data_dir,
        queue,
        lambda opened: opened.clean(state, grace_ms=grace_ms, limit=limit),
    )
    _show_count(queue, deleted, "deleted", as_json)


def obliterate(
    context: click.Context, queue: str, force: bool, yes: bool, as_json: bool, data_dir: str | None
) -> None:
    """Delete a queue."""
    status = with_queue(context, data_dir, queue, lambda opened: opened.status())
    count = sum(status.counts.values())
    _confirm(f"Delete the queue {queue} with {count} jobs and its schedulers?", "obliterate", yes)
    deleted = with_queue(context, data_dir, queue, lambda opened: opened.obliterate(force=force))
    _show_count(queue, deleted, "deleted", as_json)


def watch(
    context: click.Context, queue: str, job_id: str | None, as_json: bool, data_dir: str | None
) -> int:
    """Follow a queue, or one job to its end."""
    in_json = output.wants_json(as_json)

    async def follow(opened: AsyncQueue) -> Exit:
        await opened.status()
        async for event in opened.events(job_id):
            if in_json:
                json_line(event)
            else:
                click.echo(_line(event))
        job = await opened.job(job_id) if job_id is not None else None
        return Exit.OK if job is None or job.state == "completed" else Exit.JOB_FAILED

    return with_queue(context, data_dir, queue, follow, patience_s=RETRY_S)


def _line(event: QueueEventInfo) -> str:
    fields = " ".join(f"{name}={value}" for name, value in event.fields.items())
    return sanitize.line(f"{event.event:<18} {event.job_id or '':<8} {fields}"[:500].rstrip())


def with_queue(
    context: click.Context,
    data_dir: str | None,
    queue: str,
    act: Callable[[AsyncQueue], Awaitable[T]],
    *,
    patience_s: float | None = None,
) -> T:
    """Run `act` with a queue of the gateway."""

    async def run(client: AsyncClient) -> T:
        if patience_s is not None:
            client.patience_s = patience_s
        return await act(client.queue(queue))

    return with_client(context, data_dir, run)


def _change(
    context: click.Context,
    queue: str,
    job_ids: tuple[str, ...],
    every: bool,
    as_json: bool,
    data_dir: str | None,
    verb: str,
) -> int:
    if every == bool(job_ids):
        raise CliExit(f"{verb}: give job ids, or --all", Exit.USAGE)
    in_json = output.wants_json(as_json)

    async def run(opened: AsyncQueue) -> Exit:
        if every:
            count = await (opened.retry_all() if verb == "retry" else opened.promote_all())
            _show_count(queue, count, "waiting again", as_json)
            return Exit.OK

        async def change(job_id: str) -> None:
            changed = await (opened.retry if verb == "retry" else opened.promote)(job_id)
            if in_json:
                json_line(changed)
            else:
                click.echo(f"{sanitize.line(changed.id)}: {changed.state}")

        return await each(job_ids, change)

    return with_queue(context, data_dir, queue, run)


def _confirm(question: str, verb: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise CliExit(f"{verb} deletes jobs; confirm it with --yes", Exit.USAGE)
    click.confirm(sanitize.line(question), abort=True)


def _show_count(queue: str, count: int, done: str, as_json: bool) -> None:
    if output.wants_json(as_json):
        json_line({"queue": queue, "count": count})
    else:
        click.echo(f"{sanitize.line(queue)}: {count} jobs {done}")


def _show_paused(queue: str, paused: bool, as_json: bool) -> None:
    if output.wants_json(as_json):
        json_line({"queue": queue, "paused": paused})
    else:
        click.echo(f"{sanitize.line(queue)}: {'paused' if paused else 'not paused'}")


def json_value(text: str, what: str) -> Any:
    """The value of an argument that is JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise CliExit(f"{what} is not valid JSON: {error}", Exit.USAGE) from None
