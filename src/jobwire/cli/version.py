"""`jobwire version`: versions of jobwire, Python and the platform."""

import platform

import click

from jobwire import __version__
from jobwire.cli import options, output


@click.command()
@options.as_json
def command(as_json: bool) -> None:
    """Show the versions of jobwire, Python and the platform."""
    python, system = platform.python_version(), platform.platform(terse=True)
    if output.wants_json(as_json):
        output.json_line({"version": __version__, "python": python, "platform": system})
    else:
        click.echo(f"jobwire {__version__}  (Python {python}, {system})")
