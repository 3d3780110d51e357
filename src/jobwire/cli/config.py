"""`jobwire config`: every setting, its value and its source; secrets are masked.

The values are those of a program that would be started here. One that runs may have others, from
another shell or from `jobwire up`: a note names them, and `--running` shows its own.
"""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from jobwire.cli import options, output
from jobwire.cli.program import with_client

if TYPE_CHECKING:
    from jobwire.api.gateway import Setting, SettingList
    from jobwire.client import AsyncClient
    from jobwire.settings import Loaded

_GAP: Final = 2
_MIN_VALUE: Final = 24
_NAMED: Final = 5
"""Settings that a note names."""


@click.command()
@options.as_json
@click.option("--given", is_flag=True, help="Only settings that are set.")
@click.option("--running", is_flag=True, help="Those of the running program.")
def command(given: bool, running: bool) -> None:
    """Show every setting, its value and its source; secrets are masked. They are those of a program
    that would be started here.

    \b
    Examples:
      jobwire config --given
      jobwire config --running
      jobwire config --json | grep valkey
    """
    import msgspec

    if running:
        shown = [(each.name, each.value, each.origin) for each in with_client(_ask).settings]
    else:
        loaded = options.settings()
        shown = [(name, value, origin) for name, value, origin in loaded.shown()]
        _note_running(loaded, shown)
    rows = [each for each in shown if each[2] != "default" or not given]
    if output.wants_json():
        for name, value, origin in rows:
            output.json_line({"name": name, "value": value, "origin": origin})
    else:
        texts = [
            value
            if isinstance(value, str)
            else msgspec.json.format(msgspec.json.encode(value), indent=0).decode()
            for _, value, _ in rows
        ]
        table = [(name, text, origin) for (name, _, origin), text in zip(rows, texts, strict=True)]
        if table:
            _print_table(table)


async def _ask(client: "AsyncClient") -> "SettingList":
    from jobwire.api.gateway import SETTINGS

    return await client.call(SETTINGS)


def _note_running(loaded: "Loaded", rows: Sequence[tuple[str, object, str]]) -> None:
    """Name the settings with which a program that runs here runs otherwise; nothing if none does,
    or if it does not tell."""
    import msgspec

    from jobwire import endpoints

    data_dir = loaded.settings.data_dir
    if not loaded.is_set("data_dir"):
        data_dir = endpoints.nearest(data_dir)
    told: list[Setting] = []
    with contextlib.suppress(Exception):
        if endpoints.read(data_dir) is not None:
            from jobwire.api.gateway import SETTINGS
            from jobwire.client import Client

            with Client(data_dir=data_dir) as client:
                client.patience_s = 0
                told = client.call(SETTINGS).settings
    own = {name: msgspec.json.encode(value) for name, value, _ in rows}
    names = [each.name for each in told if msgspec.json.encode(each.value) != own.get(each.name)]
    if names:
        some = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
        click.echo(
            f"jobwire: the running program has other values of {some}; "
            "jobwire config --running shows them",
            err=True,
        )


def _print_table(rows: Sequence[tuple[str, str, str]]) -> None:
    """Print one line per setting, with its value last. A value that does not fit continues in its
    column; on a narrow terminal it has the lines below its name."""
    names, _, origins = (max(map(len, column)) for column in zip(*rows, strict=True))
    start = names + origins + 2 * _GAP
    if output.width() - start >= _MIN_VALUE:
        for name, text, origin in (("setting", "value", "from"), *rows):
            output.wrapped(text, indent=start, first=f"{name:<{names + _GAP}}{origin}")
        return
    for name, text, origin in rows:
        line = f"{name}: {text}  ({origin})"
        if len(line) <= output.width():
            click.echo(line)
        else:
            click.echo(f"{name}:")
            output.wrapped(f"{text}  ({origin})", indent=2)
