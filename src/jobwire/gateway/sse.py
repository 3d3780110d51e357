"""Server-Sent Events: the format, and one open stream.

The content of an event cannot forge another event: line ends in data become further `data:` lines,
line ends in names and ids are replaced. A stream never waits for its client: it buffers up to a
limit, then refuses. Used by `streams` and by features with events.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from jobwire.gateway.request import Send

E = TypeVar("E")
_HELLO: Final = "hello"
_GAP: Final = "gap"
_ROLLBACK: Final = "rollback"
_WRITE_BYTES: Final = 16 << 10
"""Bytes per write, and the connection's write buffer limit: a client that does not read occupies
its event buffer and little more."""
_NO_LINE_ENDS: Final = {ord("\r"): " ", ord("\n"): " ", 0: " "}


class SseEvent:
    """One event, encoded once for all streams. Without a name and an id it is `data:` only."""

    __slots__ = ("frame", "id")

    def __init__(self, name: str | None, data: bytes, event_id: str | None = None) -> None:
        self.id = event_id
        head = f"id: {_one_line(event_id)}\n" if event_id is not None else ""
        if name is not None:
            head += f"event: {_one_line(name)}\n"
        # In SSE only CR, LF and CRLF end a line, as in `bytes.splitlines`.
        lines = data.splitlines() if b"\n" in data or b"\r" in data else (data,)
        self.frame: bytes = f"{head}data: ".encode() + b"\ndata: ".join(lines) + b"\n\n"


class Comment:
    """A line that clients ignore; it has no id. `retry_ms` is how long a browser waits before it
    connects again."""

    __slots__ = ("frame", "id")

    def __init__(self, text: str, retry_ms: int = 0) -> None:
        self.id = None
        retry = f"retry: {retry_ms}\n" if retry_ms else ""
        self.frame: bytes = f": {_one_line(text)}\n{retry}\n".encode()


Item = SseEvent | Comment


def _one_line(text: str) -> str:
    return text.translate(_NO_LINE_ENDS)


class Transport(Protocol):
    """What a stream needs of its connection."""

    def abort(self) -> None: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


class StreamBuffers:
    """The size of the buffers of all streams: each has the same part of a budget."""

    __slots__ = ("_budget", "_each", "_open", "limit")

    def __init__(self, each: int, budget: int) -> None:
        self._each = each
        self._budget = budget
        self._open = 0
        self.limit = each
        """Bytes that one stream may buffer."""

    def add(self, streams: int) -> None:
        """So many streams were opened, or closed if it is negative."""
        self._open += streams
        self.limit = min(self._each, self._budget // max(1, self._open))


class EventStream:
    """One open stream, as its feeder uses it."""

    __slots__ = (
        "_buffers",
        "_bytes",
        "_frames",
        "_gap",
        "_send",
        "_start_writer",
        "_transport",
        "_writable",
        "_writing",
        "closed",
        "ending",
        "full_since_s",
        "last_id",
    )

    def __init__(
        self,
        send: Send,
        transport: Transport | None,
        buffers: StreamBuffers,
        start_writer: Callable[["EventStream"], None],
        last_id: str | None = None,
        gap: tuple[str, str] | None = None,
    ) -> None:
        self._send = send
        self._transport = transport
        if transport is not None:
            transport.set_write_buffer_limits(min(_WRITE_BYTES, buffers.limit))
        self._buffers = buffers
        self._gap = gap
        self._start_writer = start_writer
        self._frames: list[bytes] = []
        self._bytes = 0  # in the buffer and being written
        self._writable: asyncio.Event | None = None
        self._writing = False
        self.closed = False
        """The client has left, or the stream has ended."""
        self.ending = False
        self.full_since_s: float | None = None
        self.last_id = last_id
        """The id of the last event that the client has or that was buffered for it: the position to
        resume from after a refusal."""

    # `hello`, `gap` and `rollback` have no id, so that resuming never skips an event of the job.

    def send_hello(self, content: object) -> bool:
        """Send the first event of a stream: its subject, as JSON."""
        return self.push(SseEvent(_HELLO, msgspec.json.encode(content)))

    def send_gap(self) -> bool:
        """Send that events after `last_id` may be missing, if this stream has such events; returns
        like `push`."""
        if self._gap is None:
            return not (self.closed or self.ending)
        name, subject = self._gap
        content = msgspec.json.encode({name: subject, "after": self.last_id})
        return self.push(SseEvent(_GAP, content))

    def send_rollback(self, to: str) -> bool:
        """Send that the reports after the event `to` do not count; returns like `push`."""
        return self.push(SseEvent(_ROLLBACK, msgspec.json.encode({"to": to})))

    def push(self, item: Item) -> bool:
        """Buffer an event; False if the buffer is full or the stream has ended."""
        if self.closed or self.ending:
            return False
        # A single event over the limit must not block its stream forever.
        if self._bytes and self._bytes + len(item.frame) > self._buffers.limit:
            if self.full_since_s is None:
                self.full_since_s = time.monotonic()
            return False
        self._frames.append(item.frame)
        self._bytes += len(item.frame)
        if item.id is not None:
            self.last_id = item.id
        self._wake_writer()
        return True

    def end(self) -> None:
        """Close the stream once the buffer is written."""
        self.ending = True
        self._wake_writer()

    async def wait_writable(self) -> None:
        """Wait until `push` may succeed again or the stream is closed."""
        while self._bytes * 2 > self._buffers.limit and not self.closed:
            self._writable = self._writable or asyncio.Event()
            await self._writable.wait()

    def _wake_writer(self) -> None:
        if not self._writing and not self.closed:
            self._writing = True
            self._start_writer(self)

    async def write(self) -> None:
        """Write until the buffer is empty; runs in the task that `start_writer` creates."""
        try:
            while self._frames and not self.closed:
                frames, self._frames = self._frames, []
                await self._write_all(frames)
            if self.ending and not self.closed:
                self.closed = True
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._writing = False

    async def _write_all(self, frames: list[bytes]) -> None:
        begin = size = 0
        for end, frame in enumerate(frames, 1):
            size += len(frame)
            if size >= _WRITE_BYTES or end == len(frames):
                body = b"".join(frames[begin:end])
                await self._send({"type": "http.response.body", "body": body, "more_body": True})
                if self.closed:
                    return
                self._bytes -= size
                begin, size = end, 0
                self.full_since_s = None
                self._wake_waiters()

    def close(self) -> None:
        """The client has left."""
        self.closed = True
        self._frames.clear()
        self._wake_waiters()

    def drop(self) -> None:
        """Disconnect the client; buffered events are discarded."""
        self.close()
        if self._transport is not None:
            self._transport.abort()

    def _wake_waiters(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None


class EventWriter(Generic[E]):
    """Writes the events of one followed resource to a stream; a follower feeds it.

    `encode` makes a frame of an event, in the form of the wire.
    """

    __slots__ = ("_encode", "_stream")

    def __init__(self, stream: EventStream, encode: Callable[[E], SseEvent]) -> None:
        self._stream = stream
        self._encode = encode

    @property
    def closed(self) -> bool:
        return self._stream.closed or self._stream.ending

    def push(self, event: E) -> bool:
        return self._stream.push(self._encode(event))

    def send_gap(self) -> bool:
        return self._stream.send_gap()

    def send_rollback(self, to: str) -> bool:
        return self._stream.send_rollback(to)

    def end(self) -> None:
        self._stream.end()

    async def wait_writable(self) -> None:
        await self._stream.wait_writable()
