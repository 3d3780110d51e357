"""All open event streams of a gateway.

Built for ten thousand streams fed by one follower. An open stream is an ASGI call that waits for
the disconnect, and a bounded buffer; a feeder pushes events without waiting, and a short-lived task
writes them. A full buffer refuses: the feeder resumes from `last_id` after `wait_writable`. A
client whose buffer stays full is disconnected; other streams are not affected.

    async def events(request: HttpRequest) -> None:
        ...raise a Problem if there is no such job...
        await streams.serve(request, lambda stream: follower.watch(job_id, stream), hello=…)
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Callable
from typing import Final

from jobwire.api.problems import STOPPING
from jobwire.gateway.limits import StreamCount
from jobwire.gateway.memory import MemoryBudgets
from jobwire.gateway.problems import Headers, Problem, retry_after
from jobwire.gateway.request import TRANSPORT_KEY, HttpRequest
from jobwire.gateway.settings import GatewaySettings
from jobwire.gateway.sse import Comment, EventStream, StreamBuffers, Transport
from jobwire.gateway.watch_table import check_watchable
from jobwire.log import component

HEADERS: Final[Headers] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    # Proxies must neither buffer nor change events.
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
)
_HEARTBEAT: Final = Comment("heartbeat")
_STOPPED: Final = "this server is stopping; connect again"
_RECONNECT_MS: Final = (1_000, 10_000)
"""Clients of a gateway that stops connect again within this time, not all at once (G-29)."""
# Short, so that few heartbeats are written at one tick: they delay events.
_TICK_S: Final = 0.1
_SLOW_CHECK_S: Final = 1.0
_FLUSH_TIMEOUT_S: Final = 2.0
_log = component("gateway.streams")

Attach = Callable[[EventStream], Callable[[], None]]
"""Starts to feed a stream; the returned function stops it and is called exactly once."""


class SseConnections:
    """Heartbeats, slow clients and shutdown of all streams; serves inside `running()`."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._slow_client_s = settings.slow_client.total_seconds()
        budget = MemoryBudgets.of(settings).streams
        self._buffers = StreamBuffers(settings.stream_buffer_bytes, budget)
        self._count = StreamCount(settings.streams_per_key)
        # A timer wheel: each tick sends the heartbeats of one slot, a full turn those of all.
        heartbeat_s = settings.heartbeat.total_seconds()
        slots = max(1, round(heartbeat_s / _TICK_S))
        self._tick_s = heartbeat_s / slots
        self._wheel: list[set[EventStream]] = [set() for _ in range(slots)]
        self._next_slot = 0
        self._some_open = asyncio.Event()
        """Cleared while no stream is open: there is nothing to tick for."""
        self._stopping = False
        self._at_stop: list[Callable[[], None]] = []
        self._group: asyncio.TaskGroup | None = None
        self.dropped = 0
        """Clients disconnected because they did not read."""

    @property
    def open(self) -> int:
        """The number of open streams."""
        return sum(map(len, self._wheel))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Serve streams inside; at the end all streams are stopped."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            ticks = group.create_task(self._tick())
            try:
                yield
            finally:
                await self.stop()
                ticks.cancel()

    async def serve(
        self,
        request: HttpRequest,
        attach: Attach,
        *,
        hello: object = None,
        gap: tuple[str, str] | None = None,
        headers: Headers = (),
        table_use: float = 0.0,
    ) -> None:
        """Answer with an event stream until its feeder ends it or its client leaves.

        `hello` is the first event, `gap` the name and id of the subject in `gap` events; without
        them the stream has none. `table_use` tells how full the feeder's server is of watched keys.
        Raise a Problem (no such job) before this call: it starts the
        response.
        """
        if self._stopping or self._group is None:
            raise Problem(STOPPING, headers=retry_after(1))
        check_watchable(table_use)
        seen, key = request.last_event_id(), request.principal.key
        self._count.enter(key)
        slot = self._wheel[self._next_slot]
        self._next_slot = (self._next_slot + 1) % len(self._wheel)
        transport: Transport | None = request.scope.get(TRANSPORT_KEY)
        self._buffers.add(1)
        stream = EventStream(request.send, transport, self._buffers, self._start_writer, seen, gap)
        detach = None
        try:
            await request.start(200, (*HEADERS, *headers))
            if request.method == "HEAD":
                await request.end()
                return
            slot.add(stream)
            self._some_open.set()
            if hello is not None:
                stream.send_hello(hello)
            detach = attach(stream)
            # Also received when the stream was ended by our side.
            while (await request.receive())["type"] != "http.disconnect":
                pass
        finally:
            slot.discard(stream)
            stream.close()
            self._buffers.add(-1)
            self._count.leave(key)
            if detach is not None:
                detach()

    def at_stop(self, action: Callable[[], None]) -> None:
        """Run `action` at the start of `stop`, for example to release waiting requests."""
        self._at_stop.append(action)

    async def stop(self) -> None:
        """End all streams and refuse new ones."""
        self._stopping = True
        for action in self._at_stop:
            action()
        streams = [stream for slot in self._wheel for stream in slot]
        for stream in streams:
            stream.push(Comment(_STOPPED, random.randint(*_RECONNECT_MS)))  # noqa: S311 - spread
            stream.end()
        deadline_s = time.monotonic() + _FLUSH_TIMEOUT_S
        while time.monotonic() < deadline_s and not all(stream.closed for stream in streams):
            await asyncio.sleep(0.01)
        for stream in streams:
            if not stream.closed:
                stream.drop()

    def _start_writer(self, stream: EventStream) -> None:
        assert self._group is not None
        self._group.create_task(_write(stream))

    async def _tick(self) -> None:
        period_s = min(_SLOW_CHECK_S, self._slow_client_s / 4)
        checked_at_s = time.monotonic()
        while True:
            for slot in self._wheel:
                await asyncio.sleep(self._tick_s)
                for stream in tuple(slot):
                    stream.push(_HEARTBEAT)
                if time.monotonic() - checked_at_s >= period_s:
                    checked_at_s = time.monotonic()
                    self._drop_slow()
                    if not self.open:
                        self._some_open.clear()
                await self._some_open.wait()

    def _drop_slow(self) -> None:
        limit_s = time.monotonic() - self._slow_client_s
        for slot in self._wheel:
            for stream in tuple(slot):
                if stream.full_since_s is not None and stream.full_since_s < limit_s:
                    self.dropped += 1
                    _log.warning("event stream dropped; its client did not read")
                    stream.drop()


async def _write(stream: EventStream) -> None:
    """Write one stream and contain its failure: all streams share a task group."""
    try:
        await stream.write()
    except Exception:  # noqa: BLE001 - see above
        _log.exception("event stream failed; it is closed")
        stream.drop()
