"""`jobwire`: the list of commands, and the conversion of exceptions to one line and an exit code.

A command is imported when it is called, so that `jobwire --help` is fast on small boards.
"""

import atexit
import contextlib
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn, cast

import click

from jobwire import __version__
from jobwire.cli.exits import MEANINGS, CliExit, Exit
from jobwire.text import did_you_mean

# name → one line of help; the command itself is `jobwire.cli.<name>.command`
COMMANDS: Final[Mapping[str, str]] = {
    "up": "Run everything on this machine; missing servers are started.",
    "gateway": "Run only the HTTP gateway.",
    "worker": "Run only a worker for the handlers of your App.",
    "submit": "Create a job; --follow prints its events.",
    "watch": "Follow a job to its end.",
    "list": "List jobs, newest first.",
    "job": "Show everything about a job.",
    "cancel": "Cancel jobs.",
    "signal": "Send a signal to a job that waits for it.",
    "top": "Show all systems, the workers and the newest jobs, live.",
    "queue": "List, show and change queues and their jobs.",
    "shards": "Show the shards of jobs, their servers and their load.",
    "look": "Show the BullMQ queues of any server; nothing is written.",
    "valkey": "Send a command to the server of the running program.",
    "retry": "Create new jobs like failed or canceled ones.",
    "cron": "List the cron entries and their next runs.",
    "images": "Upload photos, or run their servers: faces hidden, no metadata.",
    "bot": "Run the photo bot; `bot demo` needs no account.",
    "models": "Install the weights of the local models.",
    "schema": "Print the JSON Schema of a system.",
    "key": "Create an API key.",
    "keys": "Create, list and revoke API keys of running gateways.",
    "lifecycle": "Show, set or run the expiry rules of the bucket.",
    "config": "Show every setting, its value and its source.",
    "doctor": "Check this installation; each fault with its fix.",
    "health": "Ask a program of this machine whether it is ready.",
    "version": "Show the version.",
}


class Commands(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            if ctx.resilient_parsing:
                return None  # shell completion
            hint = did_you_mean(cmd_name, COMMANDS) or "; see jobwire --help"
            raise CliExit(f"no such command {cmd_name!r}{hint}", Exit.USAGE)
        return cast("click.Command", importlib.import_module(f"jobwire.cli.{cmd_name}").command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        with formatter.section("Exit status"):
            formatter.write_dl([(str(int(code)), meaning) for code, meaning in MEANINGS.items()])


@click.command(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Settings file; default ./jobwire.yaml.  [env: JOBWIRE_CONFIG]",
)
@click.option("--debug", is_flag=True, help="Show the traceback of a failure.")
@click.version_option(__version__, message="%(version)s")
@click.pass_context
def jobwire(context: click.Context, **_: object) -> None:
    """Background jobs with live progress.

    \b
    Examples:
      jobwire up        run everything on this machine
      jobwire doctor    check this installation
    """
    if context.invoked_subcommand is None:
        from jobwire.cli.hello import hello

        hello()


def _usage_line(error: click.ClickException) -> str:
    """Return the line of a usage error."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error.format_message()
    message = error.format_message().rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    if message.endswith("?"):  # click suggests what was meant
        return f"jobwire: {message}"
    return f"jobwire: {message}; see {context.command_path if context else 'jobwire'} --help"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; every failure is one line.

    Without `arguments` this is the program itself.
    """
    code = _run(arguments)
    if arguments is None and "obstore" in sys.modules:
        _exit_now(code)
    return code


def _exit_now(code: int) -> NoReturn:
    """End the process without taking down the interpreter.

    Threads of obstore release Python objects a little later than its calls return; if the
    interpreter is going down at that moment, the process aborts, with another exit code.
    """
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001 - what a normal end runs
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed by the reader
            stream.flush()
    os._exit(code)


def _run(arguments: Sequence[str] | None) -> int:
    argv = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code: object = jobwire.main(argv, prog_name="jobwire", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except click.ClickException as error:
        click.echo(_usage_line(error), err=True)
        return Exit.USAGE
    except CliExit as stop:
        from jobwire.redaction import redact

        click.echo(f"jobwire: {redact(stop.line)}", err=True)
        return stop.code
    except Exception as error:  # noqa: BLE001 - every exception becomes one line
        from jobwire.cli.failures import explain

        return explain(error, debug="--debug" in argv)
    return code if isinstance(code, int) else Exit.OK
