"""Output of the commands: results to stdout, messages to stderr.

On a terminal a result is text in columns; in a pipe, or with `--json`, it is one JSON object per
line with the member names of the API. Colour is used only on a terminal, without NO_COLOR.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from jobwire.cli import sanitize
from jobwire.cli.exits import CliExit, Exit

if TYPE_CHECKING:
    from jobwire.client import Job

T = TypeVar("T")


def wants_json() -> bool:
    """Whether to print JSON: `--json` is given, or stdout is not a terminal."""
    return has_flag("json") or not sys.stdout.isatty()


def json_line(value: object) -> None:
    """Print one object on one line."""
    import msgspec

    click.echo(sanitize.json_text(msgspec.json.encode(value, enc_hook=str)))


def result(value: object, text: str) -> None:
    """Print a result: the value as JSON, or the text on a terminal."""
    if wants_json():
        json_line(value)
    else:
        click.echo(text)


def facts(values: Mapping[str, object]) -> None:
    """Print an object: as JSON, or one line per member on a terminal."""
    if wants_json():
        json_line(values)
    else:
        columns([(name, sanitize.line(str(value))) for name, value in values.items()])


def listing(
    values: Sequence[T],
    heading: Sequence[str],
    row: Callable[[T], Sequence[str]],
    *,
    json_of: Callable[[T], object] | None = None,
    empty: str = "",
) -> None:
    """Print a list: one JSON object per value, or rows of cells below a heading on a terminal.
    `empty` is the message for an empty list, instead of the heading."""
    if wants_json():
        for value in values:
            json_line(json_of(value) if json_of else value)
    elif values or not empty:
        columns([heading, *map(row, values)])
    else:
        info(empty)


def silent(shards: Iterable[int]) -> str:
    """Which shards are missing in an answer."""
    return f"no answer from shard {', '.join(map(str, shards))}"


def new_job(job: "Job", note: str) -> None:
    """Print a created job: as JSON, or its id and a note; with `--quiet` a pipe gets the id too."""
    if has_flag("json") or (wants_json() and not has_flag("quiet")):
        json_line(job)
    else:
        click.echo(sanitize.line(job.job_id))
        info(note)


def confirm(question: str, refusal: str) -> None:
    """Ask before a command that deletes or cancels; the refusal is for a stdin without a terminal.
    The question goes to stderr: it is not a result."""
    if not sys.stdin.isatty():
        raise CliExit(refusal, Exit.USAGE)
    click.confirm(sanitize.line(question), abort=True, err=True)


def bold(text: str) -> str:
    """Make the text bold, if colour is used."""
    return click.style(text, bold=True) if _has_colour() else text


def coloured(text: str, colour: str) -> str:
    """Colour the text, if colour is used."""
    return click.style(text, fg=colour) if _has_colour() else text


def _has_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def columns(rows: Iterable[Sequence[str]], gap: int = 2) -> None:
    """Print rows of cells, each column as wide as its widest cell."""
    table = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        click.echo((" " * gap).join(cells).rstrip())


def table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows below a heading; on a narrow terminal each row as several lines."""
    if sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True)) - 2 <= width():
        columns(rows)
        return
    for first, *rest in rows[1:]:
        click.echo(first)
        for title, cell in zip(rows[0][1:], rest, strict=True):
            if cell:
                wrapped(f"{title}: {cell}" if title else cell, indent=2)


def wrapped(text: str, *, indent: int, first: str = "") -> None:
    """Print text in the columns after `indent`, over as many lines as it needs; `first` stands
    before the first of them."""
    import textwrap

    margin = " " * indent
    lines = textwrap.wrap(
        text,
        max(20, width() - indent),
        break_long_words=False,
        break_on_hyphens=False,
    )
    for number, line in enumerate(lines or [""]):
        before = margin if number else first.ljust(indent)
        click.echo(f"{before}{line}".rstrip())


def info(text: str) -> None:
    """Print a message to stderr, unless `--quiet` is given."""
    if not has_flag("quiet"):
        click.echo(text, err=True)


def is_static() -> bool:
    """Whether nothing is to be redrawn on the terminal."""
    return has_flag("quiet") or has_flag("no_progress")


def has_flag(name: str) -> bool:
    """Whether this flag is given: `json`, `quiet`, `no_progress`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(f"jobwire.{name}"))


def program() -> str:
    """How a shell calls `jobwire` from the working directory: by its name if that finds this one,
    else by its path."""
    started = Path(sys.executable).with_name("jobwire")
    if not started.exists():
        return f"{shlex.quote(sys.executable)} -m jobwire"
    found = shutil.which("jobwire")
    if found and Path(found).resolve() == started.resolve():
        return "jobwire"
    here = Path.cwd()
    return shlex.quote(str(started.relative_to(here) if started.is_relative_to(here) else started))


def width() -> int:
    """Columns of the terminal."""
    return shutil.get_terminal_size().columns
