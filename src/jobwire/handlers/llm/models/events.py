"""Reads a stream of server-sent events: bytes in, the data of each event out. Pure.

Takes whatever servers send: either line end, comments, `data:` with or without a space, characters
split between two reads, no empty line between two events. So each `data:` line is an event; nobody
spreads a chunk of an answer over several. Bounded: a line without end is refused.
"""

from collections.abc import Iterator
from typing import Final

from jobwire.handlers.llm.models.errors import ModelError

_LONGEST_LINE: Final = 1 << 20


class EventReader:
    """One for each stream."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The data of every line that is complete now."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            raise ModelError(
                "backend_bad_response", "the model's server sent a line of more than a megabyte"
            )
        for line in lines:
            yield from _data(line)

    def rest(self) -> Iterator[bytes]:
        """The data of a last line that was not ended: whole, or the beginning of a cut one."""
        yield from _data(self._rest)


def _data(line: bytes) -> Iterator[bytes]:
    name, _, value = line.partition(b":")
    if name == b"data" and (data := value.strip()):
        yield data
