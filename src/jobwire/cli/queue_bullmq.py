"""The verbs of `jobwire queue` for BullMQ queues, over HTTP."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from jobwire.cli import options, output, sanitize
from jobwire.cli.exits import CliExit, Exit
from jobwire.cli.program import RETRY_S, each, with_client, with_queue

if TYPE_CHECKING:
    from jobwire.api.queue_jobs import JobChanged
    from jobwire.client import AsyncClient, AsyncQueue, QueueEventInfo, QueueJobInfo, QueueSummary

_COUNTED: Final = ("waiting", "active", "delayed", "completed", "failed")
_job_ids = click.argument("job_ids", metavar="[ID]...", nargs=-1)
_some_job_ids = click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
_every = click.option("--all", "every", is_flag=True, help="All jobs of the queue.")


def show_queues() -> None:
    """Print the queues."""
    from jobwire.cli.formatting import duration

    def row(queue: "QueueSummary") -> tuple[str, ...]:
        oldest = "" if queue.oldest_waiting_ms is None else duration(queue.oldest_waiting_ms)
        counts = [str(queue.counts.get(state, 0)) for state in _COUNTED]
        paused = "paused" if queue.paused else ""
        return sanitize.line(queue.name), *counts, oldest, _workers(queue), paused

    queues = with_client(lambda client: client.bullmq_queues())
    output.listing(queues, ("queue", *_COUNTED, "oldest", "workers", ""), row)


def _workers(queue: "QueueSummary") -> str:
    return "?" if queue.workers is None else str(queue.workers)


@click.command()
@click.argument("queue")
@options.common
def show(queue: str) -> None:
    """Show one BullMQ queue."""
    status = with_queue(queue, lambda opened: opened.status())
    if output.wants_json():
        output.json_line(status)
        return
    facts = [("queue", status.name), ("paused", "yes" if status.paused else "no")]
    facts += [(state, str(count)) for state, count in status.counts.items()]
    facts += [("stalled", str(status.stalled)), ("schedulers", str(status.schedulers))]
    facts.append(("workers", _workers(status)))
    output.columns([(name, sanitize.line(value)) for name, value in facts])


@click.command()
@click.argument("queue")
@click.argument("name")
@click.argument("data", required=False)
@click.option("--opts", metavar="JSON", help='Options with BullMQ\'s names, as {"attempts": 3}.')
@options.common
def add(queue: str, name: str, data: str | None, opts: str | None) -> None:
    """Add a job to a BullMQ queue. DATA is JSON, @file or - for stdin."""
    job = {"name": name, "data": json_argument(data, "data"), "opts": json_argument(opts, "--opts")}
    (added,) = with_queue(queue, lambda opened: opened.add_many([job]))
    output.result(added, f"{sanitize.line(added.id)}: {added.outcome}")


@click.command()
@click.argument("queue")
@click.option("--state", default="waiting", show_default=True, help="State of the listed jobs.")
@click.option("--first", type=click.IntRange(0), default=0, help="How many jobs to skip.")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True)
@options.common
def jobs(queue: str, state: str, first: int, limit: int) -> None:
    """List the jobs of a BullMQ queue in a state."""

    def row(job: "QueueJobInfo") -> tuple[str, ...]:
        reason = (job.problem or job.failed_reason or "")[:80]
        cells = (job.id, job.name, job.state, str(job.attempts_made), reason)
        return tuple(map(sanitize.line, cells))

    page = with_queue(queue, lambda opened: opened.jobs(state, first=first, limit=limit))
    output.listing(page.jobs, ("id", "name", "state", "attempts", "reason"), row)
    show_next_page("jobs", page.total, page.next)


def show_next_page(what: str, total: int, first: int | None) -> None:
    """Print how to get the next page, on a terminal."""
    if first is not None and not output.wants_json():
        output.info(f"{total} {what}; the next page: --first {first}")


@click.command()
@click.argument("queue")
@click.argument("job_id", metavar="ID")
@options.common
def job(queue: str, job_id: str) -> None:
    """Show one job of a BullMQ queue, with its log."""
    import msgspec

    async def read(opened: "AsyncQueue") -> "tuple[QueueJobInfo, list[str]]":
        found = await opened.job(job_id)
        return found, (await opened.logs(job_id)).lines

    found, lines = with_queue(queue, read)
    if output.wants_json():
        output.json_line(found)
        return
    click.echo(sanitize.pretty(msgspec.to_builtins(found)))
    for line in lines:
        click.echo(f"  {sanitize.line(line)}")


@click.command()
@click.argument("queue")
@_job_ids
@_every
@options.common
def retry(queue: str, job_ids: tuple[str, ...], every: bool) -> int:
    """Run failed jobs of a BullMQ queue again."""
    if every:
        return _change_all("retry", queue, job_ids, lambda opened: opened.retry_all())
    return _change("retry", queue, job_ids, lambda opened, job_id: opened.retry(job_id))


@click.command()
@click.argument("queue")
@_job_ids
@_every
@options.common
def promote(queue: str, job_ids: tuple[str, ...], every: bool) -> int:
    """Let delayed jobs of a BullMQ queue run now."""
    if every:
        return _change_all("promote", queue, job_ids, lambda opened: opened.promote_all())
    return _change("promote", queue, job_ids, lambda opened, job_id: opened.promote(job_id))


def _change(
    verb: str,
    queue: str,
    job_ids: tuple[str, ...],
    change: "Callable[[AsyncQueue, str], Awaitable[JobChanged]]",
) -> int:
    if not job_ids:
        raise _ids_or_all(verb)

    async def show(opened: "AsyncQueue", job_id: str) -> None:
        changed = await change(opened, job_id)
        output.result(changed, f"{sanitize.line(changed.id)}: {changed.state}")

    return with_queue(queue, lambda opened: each(job_ids, partial(show, opened)))


def _change_all(
    verb: str,
    queue: str,
    job_ids: tuple[str, ...],
    change: "Callable[[AsyncQueue], Awaitable[int]]",
) -> int:
    if job_ids:
        raise _ids_or_all(verb)
    _show_count(queue, with_queue(queue, change), "waiting again")
    return Exit.OK


def _ids_or_all(verb: str) -> CliExit:
    return CliExit(f"{verb}: give job ids, or --all", Exit.USAGE)


@click.command()
@click.argument("queue")
@_some_job_ids
@options.common
def cancel(queue: str, job_ids: tuple[str, ...]) -> int:
    """Cancel jobs of a BullMQ queue: one that waits is removed, one that runs is stopped."""

    async def stop(opened: "AsyncQueue", job_id: str) -> None:
        canceled = await opened.cancel(job_id)
        output.result(canceled, f"{sanitize.line(canceled.id)}: {canceled.outcome}")

    return with_queue(queue, lambda opened: each(job_ids, partial(stop, opened)))


@click.command()
@click.argument("queue")
@_some_job_ids
@options.common
def delete(queue: str, job_ids: tuple[str, ...]) -> int:
    """Delete jobs of a BullMQ queue with their children; one that runs is stopped."""

    async def remove(opened: "AsyncQueue", job_id: str) -> None:
        await opened.delete(job_id)
        output.result({"id": job_id}, f"{sanitize.line(job_id)}: deleted, or stopped if it ran")

    return with_queue(queue, lambda opened: each(job_ids, partial(remove, opened)))


@click.command()
@click.argument("queue")
@click.option("--delayed", is_flag=True, help="Delete the delayed jobs too.")
@options.yes
@options.common
def drain(queue: str, delayed: bool, yes: bool) -> None:
    """Delete all jobs of a BullMQ queue that wait."""
    states = ("waiting", "prioritized", *(("delayed",) if delayed else ()))

    def question(status: "QueueSummary") -> str:
        count = sum(status.counts.get(state, 0) for state in states)
        return f"Delete the {count} {' and '.join(states)} jobs of {queue}?"

    _delete("drain", queue, yes, question, lambda opened: opened.drain(delayed=delayed))


@click.command()
@click.argument("queue")
@click.option("--state", default="completed", show_default=True, help="State of the deleted jobs.")
@click.option("--grace-ms", type=click.IntRange(0), default=0, help="Keep jobs younger than this.")
@click.option("--limit", type=click.IntRange(0), default=0, help="Maximum number of jobs; 0: all.")
@options.yes
@options.common
def clean(queue: str, state: str, grace_ms: int, limit: int, yes: bool) -> None:
    """Delete the jobs of a BullMQ queue in a state."""

    def question(status: "QueueSummary") -> str:
        count = status.counts.get(state, 0)
        return f"Delete up to {min(count, limit or count)} {state} jobs of {queue}?"

    _delete(
        "clean",
        queue,
        yes,
        question,
        lambda opened: opened.clean(state, grace_ms=grace_ms, limit=limit),
    )


@click.command()
@click.argument("queue")
@click.option("--force", is_flag=True, help="Delete it even while workers run its jobs.")
@options.yes
@options.common
def obliterate(queue: str, force: bool, yes: bool) -> None:
    """Delete a BullMQ queue with all its jobs and schedulers."""

    def question(status: "QueueSummary") -> str:
        count = sum(status.counts.values())
        return f"Delete the queue {queue} with {count} jobs and its schedulers?"

    _delete("obliterate", queue, yes, question, lambda opened: opened.obliterate(force=force))


def _delete(
    verb: str,
    queue: str,
    yes: bool,
    question: "Callable[[QueueSummary], str]",
    act: "Callable[[AsyncQueue], Awaitable[int]]",
) -> None:
    """Ask with the numbers of the queue, then delete."""
    if not yes:
        status = with_queue(queue, lambda opened: opened.status())
        output.confirm(question(status), f"{verb} deletes jobs; confirm it with --yes")
    _show_count(queue, with_queue(queue, act), "deleted")


def _show_count(queue: str, count: int, done: str) -> None:
    output.result({"queue": queue, "count": count}, f"{sanitize.line(queue)}: {count} jobs {done}")


@click.command()
@click.argument("queue")
@click.argument("job_id", metavar="[ID]", required=False)
@options.common
def watch(queue: str, job_id: str | None) -> int:
    """Follow a BullMQ queue, or one of its jobs to its end."""

    async def follow(client: "AsyncClient") -> Exit:
        client.patience_s = RETRY_S
        opened = client.queue(queue)
        await opened.status()
        async for event in opened.events(job_id):
            output.result(event, _line(event))
        job = await opened.job(job_id) if job_id is not None else None
        return Exit.OK if job is None or job.state == "completed" else Exit.JOB_FAILED

    return with_client(follow)


def _line(event: "QueueEventInfo") -> str:
    fields = " ".join(f"{name}={value}" for name, value in event.fields.items())
    return sanitize.line(f"{event.event:<18} {event.job_id or '':<8} {fields}"[:500].rstrip())


def json_argument(argument: str | None, what: str) -> Any:
    """The value of an argument that is JSON, @file or - for stdin; `{}` without it."""
    import msgspec

    from jobwire.cli import payload
    from jobwire.json_depth import bounded

    try:
        return bounded(msgspec.json.decode)(payload.read(argument))
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise CliExit(f"{what} is not valid JSON: {error}", Exit.USAGE) from None


COMMANDS: Final = (
    show,
    add,
    jobs,
    job,
    retry,
    promote,
    cancel,
    delete,
    drain,
    clean,
    obliterate,
    watch,
)
