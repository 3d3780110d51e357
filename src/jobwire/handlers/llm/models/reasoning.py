"""Separates the reasoning of a model from its answer. Pure.

Reasoning models write `<think>…</think>` before the answer; servers that know the format send it as
`reasoning_content` instead. Some chat templates contain the opening tag, so that only the closing
one is in the text: what came before it is retracted. Text of a model that is known for it is held
back until the closing tag, or the end.
"""

import re
from collections.abc import Iterator
from typing import Final

from jobwire.handlers.llm.models import Reasoning, Retracted, Text

_OPEN: Final = re.compile(r"\s*<(think|thinking)>", re.IGNORECASE)
_MAYBE_OPEN: Final = re.compile(
    r"\s*(?:<(?:t(?:h(?:i(?:n(?:k(?:i(?:n(?:g)?)?)?)?)?)?)?)?)?\Z", re.IGNORECASE
)
_LONE_CLOSE: Final = re.compile(
    r"^[ \t]*</think(?:ing)?>[ \t]*(?:\n|\Z)", re.IGNORECASE | re.MULTILINE
)
_ANY_CLOSE: Final = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_LONGEST_CLOSE: Final = len("</thinking>")


class ReasoningFilter:
    """Splits the text of one answer, piece by piece."""

    def __init__(self, *, holds_text: bool = False) -> None:
        self._holds_text = holds_text
        self.has_lone_close = False
        self._pending = ""
        self._close: re.Pattern[str] | None = None
        """The closing tag that ends the present reasoning."""
        self._started = False
        """Whether the answer itself has begun."""
        self._line = ""
        """The last, incomplete line of the answer, to find a closing tag without an opening one."""
        self._lone_possible = True

    def feed(self, text: str) -> Iterator[Text | Reasoning | Retracted]:
        """Yield what is decided by now."""
        self._pending += text
        if self._holds_text and self._close is None and not self._started:
            if _OPEN.match(self._pending):
                self._holds_text = False
                yield from self.feed("")
                return
            if not (found := _ANY_CLOSE.search(self._pending)):
                return
            self.has_lone_close, self._lone_possible, self._started = True, False, True
            if before := self._pending[: found.start()]:
                yield Reasoning(before)
            self._pending = self._pending[found.end() :].lstrip()
        if not self._started and self._close is None and not self._open():
            return
        if self._close is not None:
            yield from self._reason()
        if self._close is None and self._started:
            yield from self._answer()

    def separated(self) -> Iterator[Text | Reasoning]:
        """The server sends the reasoning apart: yield the text that was held back."""
        if self._holds_text and not self._started and self._close is None:
            self._holds_text = self._lone_possible = False
            yield from self.rest()

    def rest(self) -> Iterator[Text | Reasoning]:
        """Yield what was held back, at the end of the answer."""
        if self._pending:
            yield Reasoning(self._pending) if self._close else Text(self._pending)
            self._pending = ""

    def _open(self) -> bool:
        """Look for the opening tag; False while undecided."""
        if found := _OPEN.match(self._pending):
            self._pending = self._pending[found.end() :]
            self._close = re.compile(rf"</{found[1]}>", re.IGNORECASE)
            self._lone_possible = False
            return True
        if _MAYBE_OPEN.match(self._pending):
            return False
        self._started = True
        return True

    def _reason(self) -> Iterator[Reasoning]:
        assert self._close is not None
        if found := self._close.search(self._pending):
            if before := self._pending[: found.start()]:
                yield Reasoning(before)
            self._pending = self._pending[found.end() :].lstrip()
            self._close, self._started = None, True
        elif decided := self._pending[: -_LONGEST_CLOSE + 1]:
            yield Reasoning(decided)
            self._pending = self._pending[len(decided) :]

    def _answer(self) -> Iterator[Text | Retracted]:
        text, self._pending = self._pending, ""
        if not text:
            return
        if self._lone_possible:
            line = self._line + text
            if found := _LONE_CLOSE.search(line):
                self._lone_possible, self.has_lone_close = False, True
                yield Retracted()
                if rest := line[found.end() :].lstrip():
                    yield Text(rest)
                return
            self._line = line.rpartition("\n")[2][-200:]
        yield Text(text)
