"""Positions in a stream, for wires that follow streams. Pure."""

from typing import Final, NamedTuple


class Position(NamedTuple):
    """A position in a stream: an entry id that compares in stream order."""

    ms: int
    number: int

    @property
    def id(self) -> str:
        return f"{self.ms}-{self.number}"


START: Final = Position(0, 0)
"""Before every entry; no entry can have this id."""


def read_position(entry_id: str) -> Position | None:
    """The position of an entry id; None for any other text."""
    ms, dash, number = entry_id.partition("-")
    if not (is_number(ms) and (is_number(number) or not dash)):
        return None
    return Position(int(ms), int(number or 0))


def is_number(text: str) -> bool:
    """Whether the server may have written this number."""
    # The server counts in 64 bits; `isdigit` alone accepts digits of other alphabets.
    return text.isascii() and text.isdigit() and len(text) <= 20 and int(text) < 1 << 64
