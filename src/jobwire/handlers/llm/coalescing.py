"""Coalesces tokens, so that one event carries several. Pure: the caller passes the time.

At 80 tokens per second this saves three events out of four."""

from typing import Final

MAX_DELAY_S: Final = 0.05
MAX_CHARACTERS: Final = 24


class Coalescer:
    """Decides when to emit the pending text: after 50 ms or 24 characters."""

    def __init__(self) -> None:
        self._pending = 0
        self.due: float | None = None
        """The time to emit at the latest; None while no text is pending."""

    def add(self, text: str, now: float) -> bool:
        """Add a piece; True if the text is due."""
        self._pending += len(text)
        if self.due is None:
            self.due = now + MAX_DELAY_S
        return self._pending >= MAX_CHARACTERS or now >= self.due

    def flush(self) -> None:
        """The pending text was emitted."""
        self._pending = 0
        self.due = None
