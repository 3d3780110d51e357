"""Splits a client's bytes into commands, for the proxy.

It reads arrays of bulk strings, which is all that clients send. No byte is lost: what is not a
command is passed on raw.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """One command as it went over the wire."""

    words: tuple[str, ...]
    raw: bytes

    @property
    def name(self) -> str:
        return self.words[0].upper() if self.words else ""


class CommandReader:
    """Feed bytes, take whole commands; `rest` is an incomplete command."""

    def __init__(self) -> None:
        self._buffer = b""
        self._plain = False

    def feed(self, data: bytes) -> Iterator[Command]:
        """Add bytes and yield the commands that are complete."""
        self._buffer += data
        while self._buffer:
            if self._plain or not self._buffer.startswith(b"*"):
                # Not a client of this protocol: pass everything on from here.
                self._plain = True
                raw, self._buffer = self._buffer, b""
                yield Command((), raw)
                return
            found = _whole_command(self._buffer)
            if found is None:
                return
            self._buffer = self._buffer[len(found.raw) :]
            yield found

    @property
    def rest(self) -> bytes:
        return self._buffer


def _whole_command(data: bytes) -> Command | None:
    end = data.find(b"\r\n")
    if end < 0:
        return None
    words: list[str] = []
    at = end + 2
    for _ in range(int(data[1:end])):
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        size = int(data[at + 1 : end])
        at = end + 2 + size + 2
        if len(data) < at:
            return None
        words.append(data[end + 2 : at - 2].decode("utf-8", "surrogateescape"))
    return Command(tuple(words), data[:at])
