"""Parses server-sent events of model servers: bytes in, the data of each event out. Pure.

Accepts LF, CRLF and CR line ends, comments, a byte order mark, `data:` with or without a space,
characters split between two reads, one event over several `data:` lines, and servers that omit the
empty line between events: data that is complete JSON is an event of its own. An event of more than
a megabyte is an error.
"""

import codecs
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from jobwire.handlers.llm.models.errors import ModelError
from jobwire.json_depth import bounded

DONE: Final = b"[DONE]"
_MAX_EVENT_BYTES: Final = 1 << 20
_decode_raw: Final = bounded(msgspec.json.Decoder(msgspec.Raw).decode)
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


class SseReader:
    """The parser of one stream."""

    def __init__(self) -> None:
        self._rest = b""
        self._data = b""
        self._is_first = True
        self._after_cr = False
        """Whether the last line ended with a CR, which an LF may follow."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the data of every complete event."""
        if self._after_cr and chunk:
            chunk, self._after_cr = chunk.removeprefix(b"\n"), False
        *lines, self._rest = _LINE_END.split(self._rest + chunk)
        self._after_cr = chunk.endswith(b"\r")
        if len(self._rest) + len(self._data) > _MAX_EVENT_BYTES:
            raise ModelError(
                "backend_bad_response", "the model's server sent an event of more than a megabyte"
            )
        for line in lines:
            yield from self._line(line)

    def rest(self) -> Iterator[bytes]:
        """Yield the data of a last event without an end; it may be incomplete."""
        yield from self._line(self._rest)
        yield from self._line(b"")

    def _line(self, line: bytes) -> Iterator[bytes]:
        if self._is_first:
            line, self._is_first = line.removeprefix(codecs.BOM_UTF8), False
        if not line:
            data, self._data = self._data, b""
            if data:
                yield data
            return
        name, _, value = line.partition(b":")
        if name != b"data" or not (value := value.strip()):
            return
        self._data = self._data + b"\n" + value if self._data else value
        if self._data == DONE or _is_json(self._data):
            data, self._data = self._data, b""
            yield data


def _is_json(data: bytes) -> bool:
    """Whether the data is whole: a JSON object cannot be continued."""
    if not data.endswith(b"}"):
        return False
    try:
        _decode_raw(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True
