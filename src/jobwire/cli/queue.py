"""`jobwire queue`: list, pause, resume or empty queues.

Each wire has a module with a function per verb, called with the same arguments; `--wire` chooses
it. To add a wire: a line in `WIRES`. A verb that a wire does not have is refused.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from jobwire.cli import options
from jobwire.cli.exits import CliExit, Exit

# wire → the module with its verbs
WIRES: Final[Mapping[str, str]] = {"streams": "jobwire.cli.queue_streams"}
DEFAULT_WIRE: Final = "streams"

wire = click.option(
    "--wire",
    type=click.Choice(list(WIRES)),
    default=DEFAULT_WIRE,
    show_default=True,
    help="The protocol of the queue.",
)


@click.group()
def command() -> None:
    """List, pause, resume or empty queues.

    \b
    Examples:
      jobwire queue ls
      jobwire queue pause billing
    """


def verb(wire: str, name: str) -> Callable[..., Any]:
    """Return the function of a wire for a verb."""
    found = getattr(importlib.import_module(WIRES[wire]), name, None)
    if found is None:
        raise CliExit(f"queues of the wire {wire!r} have no {name!r}", Exit.USAGE)
    return found


@command.command("ls")
@wire
@options.quiet
@options.as_json
@options.data_dir
@click.pass_context
def ls(context: click.Context, wire: str, **given: Any) -> object:
    """List the queues: what waits, what runs, how many workers read them."""
    return verb(wire, "ls")(context, **given)


@command.command("pause")
@click.argument("queue")
@wire
@options.quiet
@options.as_json
@options.data_dir
@click.pass_context
def pause(context: click.Context, wire: str, **given: Any) -> object:
    """Let workers start no job of a queue. Running jobs continue, and new ones wait."""
    return verb(wire, "pause")(context, **given)


@command.command("resume")
@click.argument("queue")
@wire
@options.quiet
@options.as_json
@options.data_dir
@click.pass_context
def resume(context: click.Context, wire: str, **given: Any) -> object:
    """Let workers start the jobs of a queue again."""
    return verb(wire, "resume")(context, **given)


@command.command("purge")
@click.argument("queue")
@click.option("--yes", is_flag=True, help="Do not ask.")
@wire
@options.quiet
@options.as_json
@options.data_dir
@click.pass_context
def purge(context: click.Context, wire: str, **given: Any) -> object:
    """Cancel all jobs of a queue that wait or are delayed. Running jobs continue."""
    return verb(wire, "purge")(context, **given)
