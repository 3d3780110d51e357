"""The verbs of `jobwire queue` for the queues of the jobs API, over HTTP."""

import sys

import click

from jobwire.cli import output, sanitize
from jobwire.cli.exits import CliExit, Exit
from jobwire.cli.follow import json_line
from jobwire.cli.formatting import duration
from jobwire.cli.program import with_client
from jobwire.client import PauseAnswer


def ls(context: click.Context, as_json: bool, data_dir: str | None) -> None:
    """List the queues."""
    queues = with_client(context, data_dir, lambda client: client.queues())
    if output.wants_json(as_json):
        for queue in queues:
            json_line(queue)
        return
    rows = [("queue", "waiting", "oldest", "running", "workers", "")]
    for queue in queues:
        oldest = "" if queue.oldest_waiting_ms is None else duration(queue.oldest_waiting_ms)
        counts = (str(queue.waiting), oldest, str(queue.running), str(queue.workers))
        rows.append((sanitize.line(queue.name), *counts, "paused" if queue.paused else ""))
    output.columns(rows)


def pause(context: click.Context, queue: str, as_json: bool, data_dir: str | None) -> None:
    """Pause a queue."""
    _show(with_client(context, data_dir, lambda client: client.pause_queue(queue)), as_json)


def resume(context: click.Context, queue: str, as_json: bool, data_dir: str | None) -> None:
    """Resume a queue."""
    _show(with_client(context, data_dir, lambda client: client.resume_queue(queue)), as_json)


def purge(
    context: click.Context, queue: str, yes: bool, as_json: bool, data_dir: str | None
) -> None:
    """Cancel what waits in a queue."""
    if not yes:
        if not sys.stdin.isatty():
            raise CliExit("purge cancels jobs; confirm it with --yes", Exit.USAGE)
        name = sanitize.line(queue)
        click.confirm(f"Cancel all waiting and delayed jobs of the queue {name}?", abort=True)
    answer = with_client(context, data_dir, lambda client: client.purge_queue(queue))
    if output.wants_json(as_json):
        json_line(answer)
    else:
        click.echo(f"{sanitize.line(answer.queue)}: {answer.canceled} jobs canceled")


def _show(answer: PauseAnswer, as_json: bool) -> None:
    if output.wants_json(as_json):
        json_line(answer)
        return
    click.echo(f"{sanitize.line(answer.queue)}: {'paused' if answer.paused else 'not paused'}")
    if answer.warning:
        output.info(f"Note: {sanitize.line(answer.warning)}")
