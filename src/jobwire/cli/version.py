"""`jobwire version`: versions of jobwire, Python and the platform."""

import platform

import click

from jobwire import __version__
from jobwire.cli import options, output


@click.command()
@options.as_json
def command() -> None:
    """Show the versions of jobwire, Python and the platform."""
    python, system = platform.python_version(), platform.platform(terse=True)
    output.result(
        {"version": __version__, "python": python, "platform": system},
        f"jobwire {__version__}  (Python {python}, {system})",
    )
