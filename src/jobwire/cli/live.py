"""A job while it runs, on a terminal: its text as it comes, and below it one line with a bar.

Text and notes are printed for good and scroll away; only the last, unfinished line of text and the
line of state are drawn over. A terminal that cannot do that (TERM=dumb) gets the lines alone.
"""

import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from jobwire.cli.story import Piece, Story
from jobwire.cli.words import LOOKS, duration, short_id

_BAR: Final = 24


class Screen:
    """`with Screen(...) as screen:` and show what comes."""

    def __init__(self, console: Console, task: str, job_id: str) -> None:
        self._console = console
        self._name = f"{task}  {short_id(job_id)}"
        self._story = Story()
        self._unfinished = ""
        self._began_s = time.monotonic()
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        if not self._console.is_dumb_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()
        self._finish_line()

    def show(self, story: Story, pieces: list[Piece]) -> None:
        """Print what is new."""
        self._story = story
        for piece in pieces:
            if piece.kind == "note":
                self._finish_line()
                self._console.print(Text(f"  {piece.text}", "bright_black"), soft_wrap=True)
            else:
                self._text(piece.text)
        self.tick()

    def tick(self) -> None:
        """Draw the line of state anew."""
        if self._live.is_started:
            self._live.update(self._below(), refresh=True)

    def _text(self, text: str) -> None:
        *lines, rest = (self._unfinished + text).split("\n")
        for line in lines:
            self._print(line)
        # What is wider than the screen is broken here, as the terminal would, so that what is drawn
        # over never grows.
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
        state = _state_line(self._story, self._name, time.monotonic() - self._began_s)
        return Group(Text(self._unfinished), state) if self._unfinished else Group(state)


def _state_line(story: Story, name: str, seconds: float) -> Table:
    look = LOOKS[story.status]
    row: list[Text | ProgressBar] = [Text(f"{look.shape} {look.word}", look.colour), Text(name)]
    if story.percent is not None:
        row.append(ProgressBar(100, story.percent, width=_BAR))
        row.append(Text(f"{story.percent:3.0f} %"))
    if story.attempt > 1:
        row.append(Text(f"attempt {story.attempt}"))
    if story.message:
        row.append(Text(story.message, overflow="ellipsis", no_wrap=True))
    row.append(Text(duration(seconds * 1000)))
    line = Table.grid(padding=(0, 2))
    for _ in row:
        line.add_column(no_wrap=True)
    line.add_row(*row)
    return line
