"""`jobwire` without a command: version, running program, first commands."""

import click

from jobwire import __version__
from jobwire.cli import options, output, sanitize


def hello() -> None:
    """Print an overview."""
    from jobwire import endpoints

    loaded = options.running_settings()
    found = endpoints.find(loaded.settings.data_dir)
    program = sanitize.line(f"{found.url} (by {found.origin})") if found else "none is running here"
    count = sum(loaded.is_set(path) for path in loaded.origins)
    click.echo(f"{output.bold('jobwire')} {__version__}: background jobs with live progress\n")
    click.echo(f"  program     {program}")
    name = output.program()
    click.echo(f"  settings    {count or 'none'} set; show them: {name} config --given\n")
    commands = (
        {
            "submit chat hello --follow": "create a job and follow it",
            "top": "the queue and the workers, live",
        }
        if found
        else {"up": "run everything on this machine", "doctor": "check this installation"}
    )
    rows = [(f"  {name} {each}", what) for each, what in commands.items()]
    output.columns([*rows, (f"  {name} --help", "all commands")], gap=4)
