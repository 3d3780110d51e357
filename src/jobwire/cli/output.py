"""Answers to people and to pipes: stdout is the answer, stderr is the talk.

On a terminal an answer is words in columns; in a pipe, or with `--json`, it is one JSON object a
line with the names of the API. Colour only on a terminal that wants it.
"""

import os
import shutil
import sys
from collections.abc import Iterable, Sequence

import click

from jobwire.cli import sanitize


def wants_json(asked: bool) -> bool:
    """Whether to answer in JSON: asked for, or nobody is looking."""
    return asked or not sys.stdout.isatty()


def json_line(answer: object) -> None:
    """One object, on one line."""
    import msgspec

    click.echo(sanitize.json_text(msgspec.json.encode(answer, enc_hook=str)))


def bold(text: str) -> str:
    """The text in bold, on a terminal that wants it."""
    wanted = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return click.style(text, bold=True) if wanted else text


def coloured(text: str, colour: str) -> str:
    """The text in colour, on a terminal that wants it."""
    wanted = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return click.style(text, fg=colour) if wanted else text


def columns(rows: Iterable[Sequence[str]], gap: int = 2) -> None:
    """Rows of cells, each column as wide as its widest cell."""
    table = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        click.echo((" " * gap).join(cells).rstrip())


def say(text: str) -> None:
    """Talk, beside the answer; not to whoever wants it quiet."""
    if not wished("quiet"):
        click.echo(text, err=True)


def wished(name: str) -> bool:
    """Whether the command was given this wish: `--quiet`, `--no-progress`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(f"jobwire.{name}"))


def width() -> int:
    """How many characters a line has."""
    return shutil.get_terminal_size().columns
