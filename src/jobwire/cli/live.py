"""A running job on a terminal: its tokens as they arrive, and below them one status line.

Text and notes are printed once and scroll; only the last, unfinished line of text and the status
line are redrawn. A terminal that cannot redraw (TERM=dumb) gets only the text and the notes.
"""

import time
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from jobwire.cli import output
from jobwire.cli.event_view import EventView, Piece
from jobwire.cli.formatting import duration, short_id, style_of

_BAR: Final = 24
_MIN_BAR: Final = 8
_GAP: Final = 2


class Screen:
    """The display of one job: `with Screen(…) as screen: screen.show(…)`."""

    def __init__(self, console: Console, task: str, job_id: str) -> None:
        self._console = console
        self._task = task
        self._job_id = job_id
        self._view = EventView()
        self._unfinished = ""
        self._began_s = time.monotonic()
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        if not self._console.is_dumb_terminal and not output.is_static():
            self._live.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._live.stop()
        self._finish_line()

    def show(self, view: EventView, pieces: list[Piece]) -> None:
        """Print new pieces and redraw."""
        self._view = view
        for piece in pieces:
            if piece.kind == "note":
                if output.has_flag("quiet"):
                    continue
                self._finish_line()
                self._console.print(Text(f"  {piece.text}", "bright_black"), soft_wrap=True)
            else:
                self._text(piece.text)
        self.tick()

    def tick(self) -> None:
        """Redraw the status line."""
        if self._live.is_started:
            self._live.update(self._below(), refresh=True)

    def _text(self, text: str) -> None:
        *lines, rest = (self._unfinished + text).split("\n")
        for line in lines:
            self._print(line)
        # Long lines are wrapped here, so that the redrawn part is never more than one line of text.
        width = max(20, self._console.width)
        while len(rest) >= width:
            cut = rest.rfind(" ", 0, width)
            line, rest = (rest[:width], rest[width:]) if cut <= 0 else (rest[:cut], rest[cut + 1 :])
            self._print(line)
        self._unfinished = rest

    def _print(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)

    def _finish_line(self) -> None:
        if self._unfinished:
            self._print(self._unfinished)
            self._unfinished = ""

    def _below(self) -> Group:
        seconds = time.monotonic() - self._began_s
        width = self._console.width
        state = status_line(self._view, self._task, self._job_id, seconds, width)
        return Group(Text(self._unfinished), state) if self._unfinished else Group(state)


def status_line(view: EventView, task: str, job_id: str, seconds: float, width: int) -> Table:
    """Return what fits the width: state, percent and time always, then the handler's message, the
    task, the attempt, the bar and the id."""
    style = style_of(view.status)
    percent = "" if view.percent is None else f"{view.percent:3.0f} %"
    attempt = f"attempt {view.attempt}" if view.attempt > 1 else ""
    took = duration(seconds * 1000)
    left = width - sum(len(each) + _GAP for each in (f"{style.shape} {style.word}", percent, took))

    def if_fits(text: str) -> str:
        nonlocal left
        if not text or len(text) + _GAP > left:
            return ""
        left -= len(text) + _GAP
        return text

    message = if_fits(_cut(view.message, left - _GAP))
    task, attempt = if_fits(task), if_fits(attempt)
    has_bar = bool(percent) and left >= _MIN_BAR + _GAP
    bar = min(_BAR, left - _GAP) if has_bar else 0
    left -= bar + _GAP if has_bar else 0
    shown_id = if_fits(short_id(job_id))
    cells: list[Text | ProgressBar] = [
        Text(f"{style.shape} {style.word}", style.colour),
        *(Text(each) for each in (task, shown_id) if each),
        *([ProgressBar(100, view.percent or 0, width=bar)] if has_bar else []),
        *(Text(each) for each in (percent, attempt, message, took) if each),
    ]
    line = Table.grid(padding=(0, _GAP))
    for _ in cells:
        line.add_column(no_wrap=True)
    line.add_row(*cells)
    return line


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: max(0, length - 1)]}…"
