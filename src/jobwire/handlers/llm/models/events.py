"""Parses server-sent events of model servers: bytes in, the data of each event out. Pure.

Each `data:` line is one event, because some servers omit the empty line between events and none
splits a chunk over several lines. Accepts LF and CRLF, comments, `data:` with or without a space
and characters split between two reads. A line of more than a megabyte is an error.
"""

from collections.abc import Iterator
from typing import Final

from jobwire.handlers.llm.models.errors import ModelError

_MAX_LINE_BYTES: Final = 1 << 20


class SseReader:
    """The parser of one stream."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the data of every complete line."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > _MAX_LINE_BYTES:
            raise ModelError(
                "backend_bad_response", "the model's server sent a line of more than a megabyte"
            )
        for line in lines:
            yield from _data(line)

    def rest(self) -> Iterator[bytes]:
        """Yield the data of a last line without a line end; it may be incomplete."""
        yield from _data(self._rest)


def _data(line: bytes) -> Iterator[bytes]:
    name, _, value = line.partition(b":")
    if name == b"data" and (data := value.strip()):
        yield data
