"""`jobwire up`: run everything on this machine as one supervised program."""

from typing import TYPE_CHECKING

import click

from jobwire import __version__
from jobwire.cli import options, output

if TYPE_CHECKING:
    from jobwire.programs.installation import Installation


@click.command()
@options.port
@options.host
@options.data_dir
@options.valkey
@options.setting(
    "--no-embedded",
    "up.embedded",
    flag="false",
    help_text="Start no servers; use those of the settings.  [env: JOBWIRE_UP_EMBEDDED=false]",
)
@options.setting(
    "--app",
    "up.app",
    metavar="MODULE:APP",
    help_text="Your own handlers, besides the six tasks.  [env: JOBWIRE_UP_APP]",
)
@options.only
@options.setting(
    "--no-worker",
    "up.worker",
    flag="false",
    help_text="Start no worker.  [env: JOBWIRE_UP_WORKER=false]",
)
@options.setting(
    "--reload",
    "up.reload",
    flag="true",
    help_text="For development: restart the worker when a file changes.  [env: JOBWIRE_UP_RELOAD]",
)
@options.as_json
def command() -> None:
    """Run everything on this machine; missing servers are started.

    \b
    Examples:
      jobwire up
      jobwire up --port 9000 --valkey valkey://localhost:6379
      jobwire up --app shop.jobs:app --reload
      jobwire up --only predictions
    """
    from importlib.util import find_spec

    from jobwire import endpoints, log
    from jobwire.cli.exits import CliExit, Exit
    from jobwire.local import DataDir, DataDirHeld
    from jobwire.local.listen import listen
    from jobwire.local.supervisor import Supervisor
    from jobwire.programs.installation import Installation, plan

    loaded = options.settings()
    if find_spec("httptools") is None:
        line = "`up` needs more than the light install has; run: pip install 'jobwire[all]'"
        raise CliExit(line, Exit.USAGE)
    settings = loaded.settings
    log.setup("up", settings.logging)
    planned = plan(loaded)  # raises SettingsError before anything is written
    try:
        data = DataDir.hold(settings.data_dir)
    except DataDirHeld as held:
        running = endpoints.read(settings.data_dir)
        raise DataDirHeld(held.path, held.pid, at=running.http if running else "") from None
    data.hide_from_git()
    try:
        with listen(settings.gateway.host, settings.gateway.port) as listening:
            installation = Installation(loaded, planned, data, listening)
            supervisor = Supervisor(installation.parts, installation.publish)
            try:
                supervisor.run(
                    started=lambda: _banner(installation),
                    stopping=lambda: output.info("Stopping."),
                )
            finally:
                installation.remove_files()
    finally:
        data.release()
    output.info("Stopped.")


def _banner(installation: "Installation") -> None:
    if output.wants_json():
        output.json_line(installation.facts())
        return
    click.echo(f"\n{output.bold('jobwire')} {__version__}\n")
    facts = installation.facts()
    hints = {
        "try": installation.example(output.program()),
        "stop": "Ctrl-C  (again to stop at once)",
    }
    width = max(map(len, (*facts, *hints)))
    for block in (facts, hints):
        for name, text in block.items():
            click.echo(f"  {name:<{width}}    {text}")
        click.echo()
