"""`jobwire config`: every setting, its value and its source; secrets are masked."""

from collections.abc import Sequence
from typing import Final

import click

from jobwire.cli import options, output

_GAP: Final = 2
_MIN_VALUE: Final = 24


@click.command()
@options.as_json
@click.option("--given", is_flag=True, help="Only settings that are set.")
def command(given: bool) -> None:
    """Show every setting, its value and its source; secrets are masked.

    \b
    Examples:
      jobwire config --given
      jobwire config --json | grep valkey
    """
    import msgspec

    loaded = options.settings()
    rows = [each for each in loaded.shown() if loaded.is_set(each.name) or not given]
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
        shown = [(name, text, origin) for (name, _, origin), text in zip(rows, texts, strict=True)]
        if shown:
            _print_table(shown)


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
