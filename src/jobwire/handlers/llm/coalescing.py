"""Puts small pieces of text together, so that one event carries several tokens. Pure: the time is
handed in. At eighty tokens a second this saves the server three events out of four."""

from typing import Final

EVERY_S: Final = 0.05
CHARACTERS: Final = 24


class Coalescer:
    """Says when what has come is to be told: after 50 ms or 24 characters, whichever is first."""

    def __init__(self) -> None:
        self._waiting = 0
        self.due: float | None = None
        """When to tell at the latest; None while nothing waits."""

    def add(self, text: str, now: float) -> bool:
        """A piece has come; True if it is time to tell."""
        self._waiting += len(text)
        if self.due is None:
            self.due = now + EVERY_S
        return self._waiting >= CHARACTERS or now >= self.due

    def told(self) -> None:
        """Everything that had come was told."""
        self._waiting = 0
        self.due = None
