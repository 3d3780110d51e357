"""`jobwire`: the list of commands, and the one place where a command's failure becomes words.

A command is loaded when it is called, so that `jobwire --help` stays quick on small boards.
"""

import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, cast

import click

from jobwire import __version__
from jobwire.cli.exits import WORDS, CliExit, Exit

# name → one line of help; the command itself is `jobwire.cli.<name>.command`
COMMANDS: Final[Mapping[str, str]] = {
    "up": "Run everything on this machine; what you do not have is started for you.",
    "gateway": "Run only the HTTP gateway.",
    "worker": "Run only a worker, for the handlers of your App.",
    "submit": "Make a job, and watch it if wanted.",
    "watch": "Watch a job to its end.",
    "list": "Jobs, newest first.",
    "job": "Everything about a job.",
    "cancel": "Cancel jobs.",
    "top": "The queue, the workers and the newest jobs, live.",
    "retry": "Run jobs again that failed or were canceled.",
    "images": "Photos made fit to publish: faces hidden, no metadata.",
    "schema": "JSON Schema of what is on the wire.",
    "key": "Make an API key.",
    "lifecycle": "The rules by which old objects leave the bucket.",
    "config": "Every setting, its value and where it came from.",
    "doctor": "Check this installation; each fault with its cure.",
    "version": "Which jobwire this is.",
}


class Commands(click.Group):
    """A group whose commands are loaded when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            if ctx.resilient_parsing:
                return None  # the shell asks while somebody types
            from difflib import get_close_matches

            near = get_close_matches(cmd_name, COMMANDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "see jobwire --help"
            raise CliExit(f"no such command {cmd_name!r}; {hint}", Exit.USAGE)
        return cast("click.Command", importlib.import_module(f"jobwire.cli.{cmd_name}").command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        with formatter.section("Exit status"):
            formatter.write_dl([(str(int(code)), words) for code, words in WORDS.items()])


@click.command(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Settings file; ./jobwire.yaml if it is there.  [env: JOBWIRE_CONFIG]",
)
@click.option("--debug", is_flag=True, help="Show the traceback of a failure.")
@click.version_option(__version__, message="%(version)s")
@click.pass_context
def jobwire(context: click.Context, **_: object) -> None:
    """Background jobs with live progress.

    \b
    Examples:
      jobwire up        run everything on this machine
      jobwire doctor    what is wrong here, and the cure
    """
    if context.invoked_subcommand is None:
        from jobwire.cli.hello import hello

        hello(context)


def _lines(error: click.ClickException) -> str:
    """What click says of wrong usage, and where to read on."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error.format_message()
    said = error.format_message().rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"jobwire: {said}; see {context.command_path if context else 'jobwire'} --help"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; every failure is one line."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code: object = jobwire.main(words, prog_name="jobwire", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except click.ClickException as error:
        click.echo(_lines(error), err=True)
        return Exit.USAGE
    except CliExit as stop:
        click.echo(f"jobwire: {stop.line}", err=True)
        return stop.code
    except Exception as error:  # noqa: BLE001 - whatever it is, it becomes words
        from jobwire.cli.failures import explain

        return explain(error, debug="--debug" in words)
    return code if isinstance(code, int) else Exit.OK
