"""`jobwire` alone: what this is, what is here, three things to try."""

import click

from jobwire import __version__
from jobwire.cli import options, output, sanitize


def hello(context: click.Context) -> None:
    """Greet whoever typed `jobwire` and nothing else."""
    from jobwire import endpoints

    loaded = options.settings(context)
    found = endpoints.find(loaded.settings.data_dir)
    program = (
        sanitize.line(f"{found.url}, says {found.origin}") if found else "none is running here"
    )
    given = sum(loaded.is_given(path) for path in loaded.origins)
    click.echo(f"{output.bold('jobwire')} {__version__}: background jobs with live progress\n")
    click.echo(f"  program     {program}")
    click.echo(f"  settings    {given or 'none'} given; see them with: jobwire config --given\n")
    if found:
        click.echo("  jobwire submit chat hello --follow    make a job, and watch it")
        click.echo("  jobwire top                           the queue and the workers, live")
        click.echo("  jobwire --help                        all commands")
    else:
        click.echo("  jobwire up        run everything on this machine")
        click.echo("  jobwire doctor    what is wrong here, and the cure")
        click.echo("  jobwire --help    all commands")
