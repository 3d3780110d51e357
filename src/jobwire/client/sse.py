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
        self._rest = bytearray()
        self._after_cr = False
        self._event = ""
        self._data: list[str] = []
        self._size = 0
        self._id: str | None = None

    def feed(self, chunk: bytes) -> list[Frame]:
        """The frames that are whole now."""
        frames: list[Frame] = []
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")  # the other half of a CRLF
            self._after_cr = False
        if chunk.endswith(b"\r"):
            self._after_cr = True
        self._rest += chunk
        *lines, rest = self._rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = bytearray(rest)
        for line in lines:
            if line:
                self._take(line.decode("utf-8", "replace"))
            elif (frame := self._whole()) is not None:
                frames.append(frame)
        if len(self._rest) + self._size > _MOST_BYTES:
            raise BadAnswer(f"an event of more than {_MOST_BYTES >> 20} MiB: is this jobwire?")
        return frames

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                self._event = value
            case "data":
                self._data.append(value)
                self._size += len(value)
            case "id" if "\0" not in value:
                self._id = value
            case _:  # comments, and what later versions may add
                pass

    def _whole(self) -> Frame | None:
        frame = Frame(self._event or "message", "\n".join(self._data), self._id)
        has_data = bool(self._data)
        # The id belongs to its event alone: what has none must not pass for the one before it.
        self._event, self._id, self._size = "", None, 0
        self._data.clear()
        return frame if has_data else None
