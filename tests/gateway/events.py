"""A feature with event streams that a test feeds, and a reader that reads as a browser does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any, TypeVar

from jobwire.gateway.feature import Feature
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.sse import Comment, EventStream, Item, SseEvent
from jobwire.gateway.sse_connections import Attach, SseConnections
from tests.gateway.routes import route
from tests.gateway.server import Serving, TestFeature

T = TypeVar("T")
_EVENTS: dict[str, Any] = {"media_type": "text/event-stream", "answer": str, "stream": True}


@dataclass
class EventsFeature(TestFeature):
    """`/channels/{name}/events`: watchers of a channel get the events that the test pushes into it.

    Also `/count/{n}`, fed by an async iterator.
    """

    watchers: dict[str, list[EventStream]] = field(default_factory=dict[str, list[EventStream]])
    opened: list[tuple[str, str | None]] = field(default_factory=list[tuple[str, str | None]])
    detached: int = 0

    def made(self, streams: SseConnections) -> Feature:
        self.streams = streams

        async def channel(call: HttpRequest) -> None:
            (name,) = call.params
            self.opened.append((call.principal.tenant, call.last_event_id()))

            def attach(watcher: EventStream) -> Callable[[], None]:
                self.watchers.setdefault(name, []).append(watcher)

                def detach() -> None:
                    self.watchers[name].remove(watcher)
                    self.detached += 1

                return detach

            gap = None if name == "plain" else ("channel", name)
            await streams.serve(call, attach, hello={"channel": 1}, gap=gap)

        async def count(call: HttpRequest) -> None:
            events = numbers(int(call.params[0]))
            await streams.serve(call, feeder(events))

        return Feature(
            name="events",
            routes=[
                route("GET", "/channels/{name}/events", "read", channel, **_EVENTS),
                route("GET", "/count/{n}", "read", count, **_EVENTS),
            ],
        )

    def push(self, served: Serving, name: str, *items: Item) -> list[bool]:
        """Push into every watcher of a channel, in the gateway's own thread."""
        return on_loop(
            served,
            lambda: [watcher.push(item) for watcher in self.watchers[name] for item in items],
        )

    def end(self, served: Serving, name: str) -> None:
        on_loop(served, lambda: [watcher.end() for watcher in self.watchers[name]])


def on_loop(served: Serving, work: Callable[[], T]) -> T:
    """Run something in the gateway's thread and wait for it."""
    assert served.loop is not None

    async def run() -> T:
        return work()

    return asyncio.run_coroutine_threadsafe(run(), served.loop).result(30)


async def numbers(count: int) -> AsyncIterator[Item]:
    yield Comment("counting")
    for number in range(count):
        yield SseEvent("number", b"%d" % number + b" " * 1000, str(number))


def feeder(events: AsyncIterator[Item]) -> Attach:
    """A feeder that waits while the stream's buffer is full; its end ends the stream."""

    async def feed(stream: EventStream) -> None:
        async for item in events:
            while not stream.push(item):
                if stream.closed or stream.ending:
                    return
                await stream.wait_writable()
        stream.end()

    def attach(stream: EventStream) -> Callable[[], None]:
        task = asyncio.get_running_loop().create_task(feed(stream))

        def detach() -> None:
            task.cancel()

        return detach

    return attach


@dataclass
class Seen:
    """One event as a browser dispatches it."""

    name: str
    data: str
    id: str | None


class Reader:
    """Reads a stream as the standard says: fields by line, an event at each empty line."""

    def __init__(self, served: Serving, path: str, headers: dict[str, str]) -> None:
        self._connection = HTTPConnection("127.0.0.1", served.port, timeout=30)
        self._connection.request("GET", path, headers=headers)
        self.answer = self._connection.getresponse()
        self._raw = b""
        self.comments: list[str] = []
        self.retry_ms: int | None = None

    @classmethod
    def open(cls, served: Serving, path: str, **headers: str) -> Reader:
        return cls(served, path, {key.replace("_", "-"): value for key, value in headers.items()})

    def block(self) -> bytes | None:
        """The bytes up to the next empty line; None at the end."""
        while b"\n\n" not in self._raw:
            part = self.answer.read1(65536)
            if not part:
                return None
            self._raw += part
        found, _, self._raw = self._raw.partition(b"\n\n")
        return found

    def next(self) -> Seen | None:
        """The next event, or None at the end; comments are collected separately."""
        while True:
            block = self.block()
            if block is None:
                return None
            name, data, event_id = "message", list[str](), None
            for line in block.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
                key, _, value = line.decode().partition(": ")
                match key:
                    case "":
                        self.comments.append(value or line.decode()[2:])
                    case "event":
                        name = value
                    case "data":
                        data.append(value)
                    case "id":
                        event_id = value
                    case "retry":
                        self.retry_ms = int(value)
                    case _:
                        raise AssertionError(f"unknown field in {block!r}")
            if data:
                return Seen(name, "\n".join(data), event_id)

    def rest(self) -> list[Seen]:
        """Everything to the end."""
        seen: list[Seen] = []
        while (event := self.next()) is not None:
            seen.append(event)
        return seen

    def close(self) -> None:
        self.answer.close()
        self._connection.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
