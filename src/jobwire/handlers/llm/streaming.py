"""How an answer is told while it grows: as tokens, as steps, or not at all.

Made by the tasks, called by `speaking.py` with the whole text so far. A teller decides what is new
in it and emits that; it also keeps what there is as the job's partial result.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from jobwire.handlers.context import TaskContext

_LONGEST_PIECE: Final = 8_000
"""Characters; so that an event stays below its limit however they are written."""


class Emitter(Protocol):
    """Tells one answer."""

    async def emit(self, text: str, /) -> bool:
        """The answer so far; True if that is all we want of it."""
        ...

    def forget(self) -> None:
        """The answer starts anew."""
        ...


class SilentEmitter:
    """Tells nothing."""

    async def emit(self, _text: str, /) -> bool:
        return False

    def forget(self) -> None: ...


def _as_it_is(text: str) -> str:
    return text


class TokenEmitter:
    """Tells an answer as `token` events. `at` is how many characters came before, so that a reader
    can see a gap, or that the text starts anew."""

    def __init__(
        self,
        ctx: TaskContext,
        shown: Callable[[str], str] = _as_it_is,
        enough: Callable[[str], bool] | None = None,
    ) -> None:
        """`shown` is what people are to see of a text; as the text grows, it may only grow."""
        self._ctx = ctx
        self._shown = shown
        self._enough = enough
        self._at = 0

    async def emit(self, text: str) -> bool:
        whole = self._shown(text)
        while piece := whole[self._at : self._at + _LONGEST_PIECE]:
            data = {"text": piece, "at": self._at, "attempt": self._ctx.attempt}
            self._at += len(piece)
            self._ctx.partial = whole
            await self._ctx.emit("token", data, step="llm.generate")
        return self._enough is not None and self._enough(text)

    def forget(self) -> None:
        self._at = 0


class StepEmitter:
    """Tells an answer as `step` events, each as soon as it is whole."""

    def __init__(self, ctx: TaskContext, read: Callable[[str], Sequence[str]]) -> None:
        """`read` gives the titles that are complete in a text."""
        self._ctx = ctx
        self._read = read
        self._told = 0

    async def emit(self, text: str) -> bool:
        titles = self._read(text)
        self._ctx.partial = list(titles) or self._ctx.partial
        for title in titles[self._told :]:
            self._told += 1
            await self._ctx.emit("step", {"n": self._told, "title": title}, step="plan.step")
        return False

    def forget(self) -> None:
        self._told = 0
