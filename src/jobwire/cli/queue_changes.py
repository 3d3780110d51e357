"""The verbs of `jobwire queue` that change jobs of BullMQ queues from outside their workers."""

from typing import TYPE_CHECKING, Final

import click

from jobwire.cli import options, output, sanitize
from jobwire.cli.program import with_queue
from jobwire.cli.queue_bullmq import json_argument

if TYPE_CHECKING:
    from jobwire.api.queue_jobs import JobChanged

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


COMMANDS: Final = (
    *(change_priority, change_delay, update_data, update_progress, add_log, clear_logs),
    *(detach, remove_children),
)
