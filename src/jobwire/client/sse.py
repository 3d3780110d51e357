"""Server-Sent Events: bytes in, frames out. Pure, and indifferent to where chunks are cut."""

from typing import Final, NamedTuple

from jobwire.client.errors import BadAnswer

_MOST_BYTES: Final = 4 << 20
"""Of one unfinished event; those of jobwire are far smaller."""


class Frame(NamedTuple):
    """One event as it stood on the wire."""

    event: str
    data: str
    id: str | None


class Parser:
    """Feed it what arrives."""

    def __init__(self) -> None:
        self._rest = b""
        self._after_cr = False
        self._event = ""
        self._data: list[bytes] = []
        self._size = 0
        self._id: str | None = None

    def feed(self, chunk: bytes) -> list[Frame]:
        """The frames that are whole now."""
        frames: list[Frame] = []
        *lines, self._rest = (self._rest + self._with_plain_ends(chunk)).split(b"\n")
        for line in lines:
            if not line:
                if self._data:
                    frames.append(self._whole())
                # The id belongs to its event alone: what has none must not pass for the one before.
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
            # else a comment, or what later versions may add
        if len(self._rest) + self._size > _MOST_BYTES:
            raise BadAnswer(f"an event of more than {_MOST_BYTES >> 20} MiB: is this jobwire?")
        return frames

    def _with_plain_ends(self, chunk: bytes) -> bytes:
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")  # the other half of a CRLF
            self._after_cr = False
        if b"\r" not in chunk:
            return chunk
        self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _whole(self) -> Frame:
        data = b"\n".join(self._data).decode("utf-8", "replace")
        self._data.clear()
        return Frame(self._event or "message", data, self._id)
