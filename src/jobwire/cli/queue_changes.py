"""The verbs of `jobwire queue` that change BullMQ queues, and jobs from outside their workers."""

from typing import TYPE_CHECKING, Final

import click

from jobwire.cli import options, output, sanitize
from jobwire.cli.exits import CliExit, Exit
from jobwire.cli.program import with_queue
from jobwire.cli.queue_bullmq import json_argument

if TYPE_CHECKING:
    from jobwire.api.queue_jobs import JobChanged

_DIGITS: Final = 12
_job_id = click.argument("job_id", metavar="ID")


def _show(changed: "JobChanged") -> None:
    output.result(changed, f"{sanitize.line(changed.id)}: {changed.state}")


@click.command()
@click.argument("queue")
@_job_id
@click.argument("priority", type=click.IntRange(0))
@click.option("--lifo", is_flag=True, help="Put it before the others of its priority.")
@options.common
def change_priority(queue: str, job_id: str, priority: int, lifo: bool) -> None:
    """Give a job of a BullMQ queue another priority."""
    _show(with_queue(queue, lambda opened: opened.change_priority(job_id, priority, lifo=lifo)))


@click.command()
@click.argument("queue")
@_job_id
@click.argument("delay_ms", type=click.IntRange(0))
@options.common
def change_delay(queue: str, job_id: str, delay_ms: int) -> None:
    """Let a delayed job of a BullMQ queue wait for another time, counted from now."""
    _show(with_queue(queue, lambda opened: opened.change_delay(job_id, delay_ms)))


@click.command()
@click.argument("queue")
@_job_id
@click.argument("data")
@options.common
def update_data(queue: str, job_id: str, data: str) -> None:
    """Replace the data of a job of a BullMQ queue. DATA is JSON, @file or - for stdin."""
    value = json_argument(data, "data")
    _show(with_queue(queue, lambda opened: opened.update_data(job_id, value)))


@click.command()
@click.argument("queue")
@_job_id
@click.argument("progress")
@click.option("--message", default="", help="A line of the job's log.")
@options.common
def update_progress(queue: str, job_id: str, progress: str, message: str) -> None:
    """Set the progress of a job of a BullMQ queue: a number, or any other JSON."""
    value = json_argument(progress, "progress")
    _show(with_queue(queue, lambda opened: opened.update_progress(job_id, value, message)))


@click.command()
@click.argument("queue")
@_job_id
@click.argument("line")
@click.option("--keep", type=click.IntRange(0), default=0, help="How many lines stay; 0: all.")
@options.common
def add_log(queue: str, job_id: str, line: str, keep: int) -> None:
    """Append a line to the log of a job of a BullMQ queue."""
    total = with_queue(queue, lambda opened: opened.add_log(job_id, line, keep=keep))
    output.result({"id": job_id, "total": total}, f"{sanitize.line(job_id)}: {total} lines")


@click.command()
@click.argument("queue")
@_job_id
@click.option("--keep", type=click.IntRange(0), default=0, help="How many of the newest stay.")
@options.common
def clear_logs(queue: str, job_id: str, keep: int) -> None:
    """Delete the log of a job of a BullMQ queue."""
    with_queue(queue, lambda opened: opened.clear_logs(job_id, keep=keep))
    output.result({"id": job_id, "cleared": True}, f"{sanitize.line(job_id)}: log cleared")


@click.command()
@click.argument("queue")
@_job_id
@options.common
def detach(queue: str, job_id: str) -> None:
    """Let the parent of a job of a BullMQ queue not wait for it any more."""
    _show(with_queue(queue, lambda opened: opened.detach(job_id)))


@click.command()
@click.argument("queue")
@_job_id
@options.common
def remove_children(queue: str, job_id: str) -> None:
    """Delete the children that a job of a BullMQ queue waits for and no worker runs."""
    _show(with_queue(queue, lambda opened: opened.remove_pending_children(job_id)))


def _limit(value: str, what: str) -> int | None:
    if value == "none":
        return None
    if not (value.isascii() and value.isdigit()) or len(value) > _DIGITS:
        raise CliExit(f"{what} is a number, or none", Exit.USAGE)
    return int(value)


@click.command()
@click.argument("queue")
@click.argument("most", metavar="NUMBER|none")
@options.common
def set_concurrency(queue: str, most: str) -> None:
    """Set how many jobs of a BullMQ queue all workers together run at a time."""
    number = _limit(most, "the concurrency")
    with_queue(queue, lambda opened: opened.set_concurrency(number))
    changed = {"queue": queue, "concurrency": number}
    output.result(changed, f"{sanitize.line(queue)}: concurrency {number or 'not limited'}")


@click.command()
@click.argument("queue")
@click.argument("most", metavar="NUMBER|none")
@click.argument("per_ms", metavar="[MS]", type=click.IntRange(1), required=False)
@options.common
def set_rate_limit(queue: str, most: str, per_ms: int | None) -> None:
    """Set how many jobs of a BullMQ queue all workers together start in so many milliseconds."""
    number = _limit(most, "the rate limit")
    if (number is None) != (per_ms is None):
        raise CliExit("set-rate-limit: give a number and milliseconds, or none", Exit.USAGE)
    with_queue(queue, lambda opened: opened.set_rate_limit(number, per_ms or 0))
    limit = "not limited" if number is None else f"{number} jobs in {per_ms} ms"
    changed = {"queue": queue, "max": number, "duration": per_ms}
    output.result(changed, f"{sanitize.line(queue)}: {limit}")


@click.command()
@click.argument("queue")
@click.argument("for_ms", metavar="MS", type=click.IntRange(0))
@options.common
def rate_limit(queue: str, for_ms: int) -> None:
    """Let workers of a BullMQ queue that have a rate limit start nothing for a while."""
    with_queue(queue, lambda opened: opened.rate_limit(for_ms))
    output.result({"queue": queue, "for_ms": for_ms}, f"{sanitize.line(queue)}: for {for_ms} ms")


@click.command()
@click.argument("queue")
@click.argument("dedup_id", metavar="ID")
@options.common
def free_deduplication(queue: str, dedup_id: str) -> None:
    """Let the next job of a deduplication id of a BullMQ queue be added."""
    freed = with_queue(queue, lambda opened: opened.free_deduplication(dedup_id))
    text = "free" if freed else "was not owned"
    output.result({"id": dedup_id, "freed": freed}, f"{sanitize.line(dedup_id)}: {text}")


@click.command()
@click.argument("queue")
@click.argument("keep", type=click.IntRange(0))
@options.common
def trim_events(queue: str, keep: int) -> None:
    """Delete the oldest events of a BullMQ queue, except about KEEP."""
    count = with_queue(queue, lambda opened: opened.trim_events(keep))
    output.result({"queue": queue, "count": count}, f"{sanitize.line(queue)}: {count} deleted")


COMMANDS: Final = (
    *(change_priority, change_delay, update_data, update_progress, add_log, clear_logs),
    *(detach, remove_children, set_concurrency, set_rate_limit, rate_limit),
    *(free_deduplication, trim_events),
)
