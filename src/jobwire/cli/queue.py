"""`jobwire queue`: list, look at and change queues and their jobs.

Each wire has a module with a function per verb, called with the same arguments; `--wire` chooses
it where both wires have the verb. To add a wire: a line in `WIRES`. A verb that a wire does not
have is refused. Without `--wire` all queues are listed, and a queue is found by its name.
"""

import contextlib
import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from jobwire.cli import options
from jobwire.cli.exits import CliExit, Exit

# wire → the module with its verbs
WIRES: Final[Mapping[str, str]] = {
    "streams": "jobwire.cli.queue_streams",
    "bullmq": "jobwire.cli.queue_bullmq",
}
DEFAULT_WIRE: Final = "streams"

wire = click.option(
    "--wire",
    type=click.Choice(list(WIRES)),
    help="The protocol of the queue, if the name exists on both.",
)
job_ids = click.argument("job_ids", metavar="[ID]...", nargs=-1)
yes = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def _common(function: Callable[..., object]) -> Callable[..., object]:
    """The context and the options of every verb."""
    return options.quiet(options.as_json(options.data_dir(click.pass_context(function))))


@click.group()
def command() -> None:
    """List, show and change queues and their jobs.

    \b
    Examples:
      jobwire queue ls
      jobwire queue pause billing
      jobwire queue add video-generation render '{"videoId": "v1"}'
      jobwire queue watch video-generation
    """


def verb(wire: str, name: str) -> Callable[..., Any]:
    """Return the function of a wire for a verb."""
    found = getattr(importlib.import_module(WIRES[wire]), name, None)
    if found is None:
        raise CliExit(f"queues of the wire {wire!r} have no {name!r}", Exit.USAGE)
    return found


def _wire_of(context: click.Context, queue: str, data_dir: str | None) -> str:
    """Find the wire that has a queue; the default one if none has it, which then reports it as
    unknown."""
    from jobwire.cli.program import with_client
    from jobwire.client import AsyncClient, NotFound

    async def find(client: AsyncClient) -> list[str]:
        found: list[str] = []
        # A gateway need not serve both wires.
        with contextlib.suppress(NotFound):
            found += ["streams"] * (queue in {each.name for each in await client.queues()})
        with contextlib.suppress(NotFound):
            found += ["bullmq"] * (queue in {each.name for each in await client.bullmq_queues()})
        return found

    found = with_client(context, data_dir, find)
    if len(found) > 1:
        raise CliExit(
            f"both wires have this queue; choose with --wire {'|'.join(WIRES)}", Exit.USAGE
        )
    return found[0] if found else DEFAULT_WIRE


@command.command("ls")
@wire
@_common
def ls(context: click.Context, wire: str | None, **given: Any) -> None:
    """List the queues with waiting jobs, running jobs and workers."""
    from jobwire.client import NotFound

    for each in [wire] if wire else WIRES:
        try:
            verb(each, "ls")(context, **given)
        except CliExit as error:
            # A gateway need not serve both wires.
            if wire or not isinstance(error.__cause__, NotFound):
                raise


@command.command("pause")
@click.argument("queue")
@wire
@_common
def pause(context: click.Context, wire: str | None, **given: Any) -> object:
    """Let workers start no job of a queue. Running jobs continue, and new ones wait."""
    chosen = wire or _wire_of(context, given["queue"], given["data_dir"])
    return verb(chosen, "pause")(context, **given)


@command.command("resume")
@click.argument("queue")
@wire
@_common
def resume(context: click.Context, wire: str | None, **given: Any) -> object:
    """Let workers start the jobs of a queue again."""
    chosen = wire or _wire_of(context, given["queue"], given["data_dir"])
    return verb(chosen, "resume")(context, **given)


@command.command("purge")
@click.argument("queue")
@yes
@wire
@_common
def purge(context: click.Context, wire: str | None, **given: Any) -> object:
    """Cancel all jobs of a queue that wait or are delayed. Running jobs continue."""
    return verb(wire or DEFAULT_WIRE, "purge")(context, **given)


# Verbs of BullMQ queues only


@command.command("show")
@click.argument("queue")
@_common
def show(context: click.Context, **given: Any) -> object:
    """Show one BullMQ queue."""
    return verb("bullmq", "show")(context, **given)


@command.command("add")
@click.argument("queue")
@click.argument("name")
@click.argument("data", required=False)
@click.option("--opts", metavar="JSON", help='Options with BullMQ\'s names, as {"attempts": 3}.')
@_common
def add(context: click.Context, **given: Any) -> object:
    """Add a job to a BullMQ queue. DATA is JSON, @file or - for stdin."""
    return verb("bullmq", "add")(context, **given)


@command.command("jobs")
@click.argument("queue")
@click.option("--state", default="waiting", show_default=True, help="State of the listed jobs.")
@click.option("--first", type=click.IntRange(0), default=0, help="How many jobs to skip.")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True)
@_common
def jobs(context: click.Context, **given: Any) -> object:
    """List the jobs of a BullMQ queue in a state."""
    return verb("bullmq", "jobs")(context, **given)


@command.command("job")
@click.argument("queue")
@click.argument("job_id", metavar="ID")
@_common
def job(context: click.Context, **given: Any) -> object:
    """Show one job of a BullMQ queue, with its log."""
    return verb("bullmq", "job")(context, **given)


@command.command("retry")
@click.argument("queue")
@job_ids
@click.option("--all", "every", is_flag=True, help="All jobs of the queue.")
@_common
def retry(context: click.Context, **given: Any) -> object:
    """Run failed jobs of a BullMQ queue again."""
    return verb("bullmq", "retry")(context, **given)


@command.command("promote")
@click.argument("queue")
@job_ids
@click.option("--all", "every", is_flag=True, help="All jobs of the queue.")
@_common
def promote(context: click.Context, **given: Any) -> object:
    """Let delayed jobs of a BullMQ queue run now."""
    return verb("bullmq", "promote")(context, **given)


@command.command("drain")
@click.argument("queue")
@click.option("--delayed", is_flag=True, help="Delete the delayed jobs too.")
@yes
@_common
def drain(context: click.Context, **given: Any) -> object:
    """Delete all jobs of a BullMQ queue that wait."""
    return verb("bullmq", "drain")(context, **given)


@command.command("clean")
@click.argument("queue")
@click.option("--state", default="completed", show_default=True, help="State of the deleted jobs.")
@click.option("--grace-ms", type=click.IntRange(0), default=0, help="Keep jobs younger than this.")
@click.option("--limit", type=click.IntRange(0), default=0, help="Maximum number of jobs; 0: all.")
@yes
@_common
def clean(context: click.Context, **given: Any) -> object:
    """Delete the jobs of a BullMQ queue in a state."""
    return verb("bullmq", "clean")(context, **given)


@command.command("obliterate")
@click.argument("queue")
@click.option("--force", is_flag=True, help="Delete it even while workers run its jobs.")
@yes
@_common
def obliterate(context: click.Context, **given: Any) -> object:
    """Delete a BullMQ queue with all its jobs and schedulers."""
    return verb("bullmq", "obliterate")(context, **given)


@command.command("flow")
@click.argument("queue")
@click.argument("job_id", metavar="ID")
@click.option("--depth", type=click.IntRange(1, 50), help="Number of levels to show.")
@click.option("--width", type=click.IntRange(1, 200), help="Number of children to show per job.")
@_common
def flow(context: click.Context, **given: Any) -> None:
    """Show a job of a BullMQ queue with its parent and its children."""
    from jobwire.cli import queue_flows

    queue_flows.flow(context, **given)


@command.command("add-flow")
@click.argument("queue")
@click.argument("flow", metavar="JSON")
@_common
def add_flow(context: click.Context, **given: Any) -> None:
    """Add a tree of jobs to BullMQ queues. JSON is as for Node's FlowProducer, @file or - for
    stdin."""
    from jobwire.cli import queue_flows

    queue_flows.add_flow(context, **given)


@command.command("schedulers")
@click.argument("queue")
@click.option("--first", type=click.IntRange(0), default=0, help="How many schedulers to skip.")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True)
@_common
def schedulers(context: click.Context, **given: Any) -> None:
    """List the job schedulers of a BullMQ queue with their next runs."""
    from jobwire.cli import queue_flows

    queue_flows.schedulers(context, **given)


@command.command("schedule")
@click.argument("queue")
@click.argument("scheduler_id", metavar="ID")
@click.argument("name")
@click.argument("data", required=False)
@click.option("--every-ms", type=click.IntRange(1), help="The interval of the jobs.")
@click.option("--cron", metavar="PATTERN", help="Five fields, or six with seconds in front.")
@click.option("--tz", metavar="ZONE", help="The time zone of the pattern; UTC without it.")
@click.option("--limit", type=click.IntRange(1), help="Total number of jobs.")
@click.option("--opts", metavar="JSON", help="Options of the jobs, with BullMQ's names.")
@_common
def schedule(context: click.Context, **given: Any) -> None:
    """Set a job scheduler of a BullMQ queue, new or changed."""
    from jobwire.cli import queue_flows

    if (given["every_ms"] is None) == (given["cron"] is None):
        raise CliExit("schedule: give either --every-ms or --cron", Exit.USAGE)
    queue_flows.schedule(context, **given)


@command.command("unschedule")
@click.argument("queue")
@click.argument("scheduler_id", metavar="ID")
@_common
def unschedule(context: click.Context, **given: Any) -> None:
    """Remove a job scheduler of a BullMQ queue."""
    from jobwire.cli import queue_flows

    queue_flows.unschedule(context, **given)


@command.command("watch")
@click.argument("queue")
@click.argument("job_id", metavar="[ID]", required=False)
@_common
def watch(context: click.Context, **given: Any) -> object:
    """Follow a BullMQ queue, or one of its jobs to its end."""
    return verb("bullmq", "watch")(context, **given)
