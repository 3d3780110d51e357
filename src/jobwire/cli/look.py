"""`jobwire look`: look at the BullMQ queues of any server, in the terminal or on a page; nothing is
written."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from jobwire.cli import options, output, sanitize
from jobwire.cli.exits import CliExit, Exit

if TYPE_CHECKING:
    from jobwire.systems.queues.look import FoundQueue, FoundQueueJob

_MAX_ERROR = 500
"""Characters of a server's error."""


@click.command()
@click.argument("url")
@click.argument("queue", required=False)
@click.option("--prefix", default="bull", show_default=True, help="The first part of every key.")
@click.option("--state", default="", metavar="STATE", help="Only jobs in this state.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=5, show_default=True, help="Jobs per state."
)
@click.option("--page", is_flag=True, help="Serve a page without buttons, on this machine only.")
@options.port
@options.quiet
@options.as_json
def command(url: str, queue: str | None, prefix: str, state: str, limit: int, page: bool) -> None:
    """Show the BullMQ queues of a server, or the jobs of one queue.

    It only reads: no key is written.

    \b
    Examples:
      jobwire look redis://localhost:6379
      jobwire look redis://localhost:6379 video-generation --state failed
      jobwire look redis://localhost:6379 --page
    """
    if page:
        _serve_page(url, prefix)
        return
    from jobwire.job.errors import RefusedError
    from jobwire.systems.queues.look import STATES, look_at_jobs, look_at_server
    from jobwire.valkey import ValkeyError
    from jobwire.valkey.errors import ConfigError

    if state and state not in STATES:
        known = ", ".join(STATES)
        raise CliExit(f"no such state {sanitize.line(state)!r}; known: {known}", Exit.USAGE)
    try:
        if queue is not None:
            _show_jobs(asyncio.run(look_at_jobs(url, prefix, queue, state, limit)))
            return
        found = asyncio.run(look_at_server(url, prefix))
    except ConfigError as error:
        raise CliExit(str(error), Exit.USAGE) from error
    except RefusedError as error:
        raise CliExit(sanitize.line(error.message), Exit.USAGE) from error
    except ValkeyError as error:
        line = f"the server cannot be read: {sanitize.line(str(error))[:_MAX_ERROR]}"
        raise CliExit(line, Exit.UNREACHABLE) from error
    _show_queues(found.queues)
    if not found.whole:
        output.info("The server has many keys: not all of them were scanned.")


def _serve_page(url: str, prefix: str) -> None:
    """A gateway of the queues only, without the routes that change something."""
    from jobwire import log
    from jobwire.local.listen import listen
    from jobwire.systems.system import resolve

    loaded = options.settings(
        valkey__url=("URL", url),
        queues__url=("URL", url),
        queues__prefix=("--prefix", prefix),
        gateway__host=("--page", "127.0.0.1"),
        gateway__read_only=("--page", "true"),
        systems=("--page", "queues"),
    )
    settings = loaded.settings
    log.setup("look", settings.logging)
    listening = listen(settings.gateway.host, settings.gateway.port)

    # Heavy imports, after the checks of settings and port.
    import uvloop

    from jobwire.programs.gateway import serve_gateway

    def on_ready() -> None:
        number = listening.getsockname()[1]
        output.info(f"read-only page on http://127.0.0.1:{number}/#/jobs?wire=bullmq")

    uvloop.run(
        serve_gateway(settings, [resolve("queues")], listening, on_ready=on_ready, loaded=loaded)
    )


def _show_queues(queues: "Sequence[FoundQueue]") -> None:
    if output.wants_json():
        for each in queues:
            output.json_line(
                {
                    "name": each.name,
                    "paused": each.figures.paused,
                    "counts": {str(state): count for state, count in each.figures.jobs.items()},
                    "workers": each.workers,
                }
            )
        return
    if not queues:
        output.info("No queue was found. If the queues have another prefix, give it with --prefix.")
        return
    states = list(queues[0].figures.jobs)
    rows = [("queue", *map(str, states), "workers", "")]
    for each in queues:
        counts = [str(each.figures.jobs[state]) for state in states]
        workers = "?" if each.workers is None else str(each.workers)
        paused = "paused" if each.figures.paused else ""
        rows.append((sanitize.line(each.name), *counts, workers, paused))
    output.columns(rows)


def _show_jobs(jobs: "Sequence[FoundQueueJob]") -> None:
    def row(job: "FoundQueueJob") -> tuple[str, ...]:
        cells = (job.id, job.name, job.state, str(job.attempts_made), job.reason[:80])
        return tuple(map(sanitize.line, cells))

    heading = ("id", "name", "state", "attempts", "reason")
    output.listing(jobs, heading, row, json_of=lambda job: job.body)
