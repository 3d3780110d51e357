"""Parser of Server-Sent Events: chunks of bytes in, frames out. Pure."""

from typing import Final, NamedTuple

from jobwire.client.errors import BadAnswer

_MAX_BYTES: Final = 4 << 20
"""Limit of one unfinished event; those of jobwire are far smaller."""


class Frame(NamedTuple):
    """One event of the stream."""

    event: str
    data: str
    id: str | None


class Parser:
    """Feed it received chunks, cut anywhere."""

    def __init__(self) -> None:
        self._rest = b""
        self._after_cr = False
        self._event = ""
        self._data: list[bytes] = []
        self._size = 0
        self._id: str | None = None

    def feed(self, chunk: bytes) -> list[Frame]:
        """Return the frames that are complete now."""
        frames: list[Frame] = []
        *lines, self._rest = (self._rest + self._normalize_line_ends(chunk)).split(b"\n")
        for line in lines:
            if not line:
                if self._data:
                    frames.append(self._frame())
                # Unlike in a browser, an id holds for its own event only: an event without an id is
                # no duplicate of the one before.
                self._event, self._id, self._size = "", None, 0
                continue
            name, _, value = line.partition(b":")
            if value.startswith(b" "):
                value = value[1:]
            if name == b"data":
                self._data.append(value)
                self._size += len(value)
            elif name == b"id":
                if b"\0" not in value:
                    self._id = value.decode("utf-8", "replace")
            elif name == b"event":
                self._event = value.decode("utf-8", "replace")
            # else: a comment, or an unknown field
        if len(self._rest) + self._size > _MAX_BYTES:
            raise BadAnswer(f"an event of more than {_MAX_BYTES >> 20} MiB: is this jobwire?")
        return frames

    def _normalize_line_ends(self, chunk: bytes) -> bytes:
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")  # the second half of a CRLF
            self._after_cr = False
        if b"\r" not in chunk:
            return chunk
        self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _frame(self) -> Frame:
        data = b"\n".join(self._data).decode("utf-8", "replace")
        self._data.clear()
        return Frame(self._event or "message", data, self._id)
