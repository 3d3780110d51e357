"""All open event streams of a gateway: the one writer that every room uses.

Made for ten thousand readers fed by one follower. An open stream is an ASGI call that sleeps
until its client leaves, and a bounded buffer; whoever has events pushes them without waiting, and
a short-lived task writes them out. A full buffer refuses: the follower goes on from `last_id`
when there is `room()` again. A client whose buffer stays full is cut off, and hurts nobody else.

    async def events(call: Call) -> None:
        ...refuse what must be refused...
        await streams.serve(call, lambda watcher: follower.watch(job_id, watcher), hello=…)
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine
from functools import partial
from typing import Final

from jobwire.gateway.limits import StreamCount
from jobwire.gateway.problems import STOPPING, Headers, Problem, retry_after
from jobwire.gateway.request import TRANSPORT_KEY, HttpRequest
from jobwire.gateway.settings import GatewaySettings
from jobwire.gateway.sse import Comment, EventStream, Item, Transport
from jobwire.log import component

HEADERS: Final[Headers] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    # Proxies must neither keep events back nor change them.
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
)
_HEARTBEAT: Final = Comment("heartbeat")
_GOODBYE: Final = Comment("this server is stopping; connect again")
# Short: what is written at one tick keeps events waiting meanwhile.
_TICK_S: Final = 0.1
_LOOK_S: Final = 1.0
_LAST_WORDS_S: Final = 2.0
_log = component("gateway.streams")

Attach = Callable[[EventStream], Callable[[], None]]
"""Begin to feed a watcher; what it returns ends that, and is called exactly once."""


class Streams:
    """Heartbeats, slow clients, the end. Streams are served inside `running()`."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._slow_client_s = settings.slow_client.total_seconds()
        self._buffer_bytes = settings.stream_buffer_bytes
        self._count = StreamCount(settings.streams_per_key)
        # One turn of the wheel is one heartbeat; each tick serves one spoke of it.
        heartbeat_s = settings.heartbeat.total_seconds()
        spokes = max(1, round(heartbeat_s / _TICK_S))
        self._tick_s = heartbeat_s / spokes
        self._wheel: list[set[EventStream]] = [set() for _ in range(spokes)]
        self._next_spoke = 0
        self._stopping = False
        self._at_stop: list[Callable[[], None]] = []
        self._group: asyncio.TaskGroup | None = None
        self.dropped = 0
        """Clients that were cut off because they did not read."""

    @property
    def open(self) -> int:
        """How many streams are open."""
        return sum(map(len, self._wheel))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Serve streams inside; at the end each client is told goodbye."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            ticks = group.create_task(self._tick())
            try:
                yield
            finally:
                await self.stop()
                ticks.cancel()

    async def serve(self, call: HttpRequest, attach: Attach, *, hello: object = None) -> None:
        """Answer a call with an event stream until its feeder ends it or its client leaves.

        `hello` says what the stream is about. Refuse what must be refused (no such job) before
        this; afterwards the answer has begun.
        """
        if self._stopping or self._group is None:
            raise Problem(STOPPING, headers=retry_after(1))
        seen, key = call.last_event_id(), call.principal.key
        self._count.enter(key)
        spoke = self._wheel[self._next_spoke]
        self._next_spoke = (self._next_spoke + 1) % len(self._wheel)
        transport: Transport | None = call.scope.get(TRANSPORT_KEY)
        watcher = EventStream(call.send, transport, self._buffer_bytes, self._start_writer, seen)
        detach = None
        try:
            await call.start(200, HEADERS)
            if call.method == "HEAD":
                await call.end()
                return
            spoke.add(watcher)
            if hello is not None:
                watcher.send_hello(hello)
            detach = attach(watcher)
            # The server says so too when the stream was ended from our side.
            while (await call.receive())["type"] != "http.disconnect":
                pass
        finally:
            spoke.discard(watcher)
            watcher.close()
            self._count.leave(key)
            if detach is not None:
                detach()

    def fed_by(self, events: AsyncIterable[Item]) -> Attach:
        """A feeder out of an async iterator, for streams that are few; its end ends the stream."""

        async def feed(watcher: EventStream) -> None:
            async for item in events:
                while not watcher.push(item):
                    if watcher.closed or watcher.ending:
                        return
                    await watcher.wait_writable()
            watcher.end()

        def attach(watcher: EventStream) -> Callable[[], None]:
            # If it breaks, the client is told the end, connects again and resumes.
            return partial(_cancel, self._start(feed(watcher), watcher.end))

        return attach

    def at_stop(self, action: Callable[[], None]) -> None:
        """Do this too when the gateway is about to stop: let go of requests that wait."""
        self._at_stop.append(action)

    async def stop(self) -> None:
        """Say goodbye to every client and refuse new ones."""
        self._stopping = True
        for action in self._at_stop:
            action()
        watchers = [watcher for spoke in self._wheel for watcher in spoke]
        for watcher in watchers:
            watcher.push(_GOODBYE)
            watcher.end()
        deadline_s = time.monotonic() + _LAST_WORDS_S
        while time.monotonic() < deadline_s and not all(each.closed for each in watchers):
            await asyncio.sleep(0.01)
        for watcher in watchers:
            if not watcher.closed:
                watcher.drop()

    def _start_writer(self, watcher: EventStream) -> None:
        self._start(watcher.write(), watcher.drop)

    def _start(
        self, work: Coroutine[None, None, None], if_it_breaks: Callable[[], None]
    ) -> asyncio.Task[None]:
        assert self._group is not None
        return self._group.create_task(_quietly(work, if_it_breaks))

    async def _tick(self) -> None:
        look_s = min(_LOOK_S, self._slow_client_s / 4)
        looked_at_s = time.monotonic()
        while True:
            for spoke in self._wheel:
                await asyncio.sleep(self._tick_s)
                for watcher in tuple(spoke):
                    watcher.push(_HEARTBEAT)
                if time.monotonic() - looked_at_s >= look_s:
                    looked_at_s = time.monotonic()
                    self._drop_slow()

    def _drop_slow(self) -> None:
        limit_s = time.monotonic() - self._slow_client_s
        for spoke in self._wheel:
            for watcher in tuple(spoke):
                if watcher.full_since_s is not None and watcher.full_since_s < limit_s:
                    self.dropped += 1
                    _log.warning("a client that did not read its events was cut off")
                    watcher.drop()


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


async def _quietly(work: Coroutine[None, None, None], if_it_breaks: Callable[[], None]) -> None:
    """Whatever goes wrong with one stream stays with it: all share a task group."""
    try:
        await work
    except Exception:  # noqa: BLE001 - see above
        _log.exception("an event stream broke off")
        if_it_breaks()
