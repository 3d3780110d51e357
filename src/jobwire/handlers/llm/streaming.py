"""Emitters: the events of an answer while it grows, as tokens, as steps or none.

Created by the tasks, called by `generation.py` with the whole text so far. An emitter emits what is
new and stores the text as the job's partial result.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from jobwire.handlers.context import TaskContext

_MAX_PIECE: Final = 8_000
"""Characters; keeps an event below its size limit in any encoding."""


class Emitter(Protocol):
    """Emits the events of one answer."""

    async def emit(self, text: str, /) -> bool:
        """Emit what is new in the answer so far; True if no more of it is needed."""
        ...

    def reset(self) -> None:
        """Start over with a new answer."""
        ...


class SilentEmitter:
    """Emits nothing."""

    async def emit(self, _text: str, /) -> bool:
        return False

    def reset(self) -> None: ...


class TokenEmitter:
    """Emits `token` events. `at` is the number of characters before, so that a reader detects a
    gap."""

    def __init__(
        self,
        ctx: TaskContext,
        visible: Callable[[str], str] = str,
        is_complete: Callable[[str], bool] | None = None,
    ) -> None:
        """`visible` extracts the text to emit; its result must only grow as the text grows."""
        self._ctx = ctx
        self._visible = visible
        self._is_complete = is_complete
        self._at = 0

    async def emit(self, text: str) -> bool:
        whole = self._visible(text)
        while piece := whole[self._at : self._at + _MAX_PIECE]:
            data = {"text": piece, "at": self._at, "attempt": self._ctx.attempt}
            self._at += len(piece)
            self._ctx.partial = whole
            await self._ctx.emit("token", data, step="llm.generate")
        return self._is_complete is not None and self._is_complete(text)

    def reset(self) -> None:
        self._at = 0


class StepEmitter:
    """Emits `step` events, each when the step is complete."""

    def __init__(self, ctx: TaskContext, parse: Callable[[str], Sequence[str]]) -> None:
        """`parse` returns the complete titles in a text."""
        self._ctx = ctx
        self._parse = parse
        self._emitted = 0

    async def emit(self, text: str) -> bool:
        titles = self._parse(text)
        self._ctx.partial = list(titles) or self._ctx.partial
        for title in titles[self._emitted :]:
            self._emitted += 1
            await self._ctx.emit("step", {"n": self._emitted, "title": title}, step="plan.step")
        return False

    def reset(self) -> None:
        self._emitted = 0


class ReasoningEmitter:
    """Emits `reasoning` events."""

    def __init__(self, ctx: TaskContext) -> None:
        self._ctx = ctx
        self._pending = ""
        self._at = 0
        self.text = ""
        """All of it."""

    def add(self, text: str) -> None:
        """Add a piece, to be emitted by `flush`."""
        self._pending += text
        self.text += text

    async def flush(self) -> None:
        """Emit what was added."""
        while piece := self._pending[:_MAX_PIECE]:
            data = {"text": piece, "at": self._at, "attempt": self._ctx.attempt}
            self._pending = self._pending[len(piece) :]
            self._at += len(piece)
            await self._ctx.emit("reasoning", data, step="llm.reason")


async def emit_reset(ctx: TaskContext, reason: str, wait_s: float = 0.0) -> None:
    """Emit `reset`: the text so far does not count."""
    data = {"attempt": ctx.attempt, "reason": reason, "wait_s": round(wait_s, 2)}
    await ctx.emit("reset", data, step="llm.retry")


async def emit_progress(ctx: TaskContext, step: str, message: str, done: int, total: int) -> None:
    """Emit a `progress` event."""
    percent = 100 * done // total
    data = {"percent": percent, "message": message, "done": done, "total": total}
    await ctx.emit("progress", data, step=step)
