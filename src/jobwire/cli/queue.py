"""`jobwire queue`: list, show and change queues and their jobs.

Here are the verbs that several wires have; `queue_bullmq`, `queue_changes` and `queue_flows` have
those of BullMQ queues. Without `--wire` all queues are listed, and a queue is found by its name.
"""

import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import click

from jobwire.cli import options, output, queue_bullmq, queue_changes, queue_flows, sanitize
from jobwire.cli.exits import CliExit, Exit
from jobwire.cli.program import with_client, with_queue
from jobwire.text import plural

if TYPE_CHECKING:
    from jobwire.client import AsyncClient, AsyncQueue, JobQueueInfo, PauseAnswer

WIRES: Final = ("streams", "bullmq")

_wire = click.option(
    "--wire",
    type=click.Choice(WIRES),
    help="The protocol of the queue, if the name exists on both.",
)


@click.group()
def command() -> None:
    """List, show and change queues and their jobs.

    \b
    Examples:
      jobwire queue ls
      jobwire queue pause billing
      jobwire queue add mail send '{"to": "a@example.com"}'
      jobwire queue watch mail
    """


@command.command("ls")
@_wire
@options.common
def ls(wire: str | None) -> None:
    """List the queues with waiting jobs, running jobs and workers."""
    from jobwire.client import NotFound

    for each in [wire] if wire else WIRES:
        try:
            if each == "bullmq":
                queue_bullmq.show_queues()
            else:
                _show_queues()
        except CliExit as error:
            # A gateway need not serve both wires.
            if wire or not isinstance(error.__cause__, NotFound):
                raise


def _show_queues() -> None:
    from jobwire.cli.formatting import duration

    def row(queue: "JobQueueInfo") -> tuple[str, ...]:
        oldest = "" if queue.oldest_waiting_ms is None else duration(queue.oldest_waiting_ms)
        counts = (str(queue.waiting), oldest, str(queue.running), str(queue.workers))
        return sanitize.line(queue.name), *counts, "paused" if queue.paused else ""

    queues = with_client(lambda client: client.queues())
    output.listing(queues, ("queue", "waiting", "oldest", "running", "workers", ""), row)


@command.command("pause")
@click.argument("queue")
@_wire
@options.common
def pause(queue: str, wire: str | None) -> None:
    """Let workers start no job of a queue. Running jobs continue, and new ones wait."""
    _change_pause(
        queue, wire, lambda client: client.pause_queue(queue), lambda opened: opened.pause()
    )


@command.command("resume")
@click.argument("queue")
@_wire
@options.common
def resume(queue: str, wire: str | None) -> None:
    """Let workers start the jobs of a queue again."""
    _change_pause(
        queue, wire, lambda client: client.resume_queue(queue), lambda opened: opened.resume()
    )


def _change_pause(
    queue: str,
    wire: str | None,
    of_streams: "Callable[[AsyncClient], Awaitable[PauseAnswer]]",
    of_bullmq: "Callable[[AsyncQueue], Awaitable[bool]]",
) -> None:
    """Pause or resume a queue of either wire."""
    value: object
    if (wire or _wire_of(queue)) == "bullmq":
        paused, warning = with_queue(queue, of_bullmq), None
        value = {"queue": queue, "paused": paused}
    else:
        value = answer = with_client(of_streams)
        paused, warning = answer.paused, answer.warning
    output.result(value, f"{sanitize.line(queue)}: {'paused' if paused else 'not paused'}")
    if warning and not output.wants_json():
        output.info(f"Note: {sanitize.line(warning)}")


def _wire_of(queue: str) -> str:
    """Find the wire that has a queue; the first if none has it, which then reports it as
    unknown."""
    from jobwire.client import NotFound

    async def find(client: "AsyncClient") -> list[str]:
        found: list[str] = []
        # A gateway need not serve both wires.
        with contextlib.suppress(NotFound):
            found += ["streams"] * (queue in {each.name for each in await client.queues()})
        with contextlib.suppress(NotFound):
            found += ["bullmq"] * (queue in {each.name for each in await client.bullmq_queues()})
        return found

    found = with_client(find)
    if len(found) > 1:
        raise CliExit(
            f"both wires have this queue; choose with --wire {'|'.join(WIRES)}", Exit.USAGE
        )
    return found[0] if found else WIRES[0]


@command.command("purge")
@click.argument("queue")
@click.option("--suspended", is_flag=True, help="Cancel its suspended jobs too.")
@options.yes
@_wire
@options.common
def purge(queue: str, suspended: bool, yes: bool, wire: str | None) -> None:
    """Cancel all jobs of a queue that wait or are delayed. Running jobs continue."""
    if wire == "bullmq":
        raise CliExit("BullMQ queues have no purge; use: jobwire queue drain", Exit.USAGE)
    if not yes:
        kinds = "waiting, delayed and suspended" if suspended else "waiting and delayed"
        question = f"Cancel all {kinds} jobs of the queue {queue}?"
        output.confirm(question, "purge cancels jobs; confirm it with --yes")
    answer = with_client(lambda client: client.purge_queue(queue, suspended=suspended))
    output.result(
        answer, f"{sanitize.line(answer.queue)}: {plural(answer.canceled, 'job')} canceled"
    )


for verb in (*queue_bullmq.COMMANDS, *queue_changes.COMMANDS, *queue_flows.COMMANDS):
    command.add_command(verb)
