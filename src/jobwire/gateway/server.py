"""uvicorn, with limits on what a client may do to it before the application sees a request.

uvicorn keeps whatever headers it is sent and waits for ever for those that do not come. This one
counts the head of a request, and once a second looks at every connection: whoever sends its
headers or its body too slowly is told so and let go. Event streams are ended before connections
are waited for, since they would not end by themselves.
"""

import asyncio
import gc
import logging
import socket
from collections.abc import Callable
from typing import Any, Final, cast
from urllib.parse import unquote

import httptools
import msgspec
import uvicorn
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from jobwire.gateway.app import Gateway
from jobwire.gateway.call import SAFETY, TRANSPORT_KEY, ASGIApp, Message, new_request_id
from jobwire.gateway.exchange import Exchange
from jobwire.gateway.problems import (
    BAD_REQUEST,
    HEADERS_TOO_LARGE,
    MEDIA_TYPE,
    TIMED_OUT,
    Kind,
)
from jobwire.gateway.settings import GatewaySettings

_SWEEP_S: Final = 1.0
_SLOWEST_BODY: Final = 1024
"""Bytes a second that even the slowest client must manage."""
_LINGER_S: Final = 2.0
"""How long a refused client may take to read why; cutting it off at once would lose the answer."""
_UNWANTED_BYTES: Final = 1 << 20
"""How much of a body is still taken in after its request was answered."""


class Connection(HttpToolsProtocol):
    """One client's connection."""

    limits: GatewaySettings

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._app: ASGI3Application = cast("Any", self).app  # whose annotation says too much
        self._head_bytes = 0
        self._body_bytes = 0
        self._refused = False
        # Since when we wait for bytes of a request; None while it is whole.
        self._waiting_since_s: float | None = None
        self._in_body = False
        self._answered_at_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._waiting_since_s = self.loop.time()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._head_bytes += len(data)
        super().data_received(data)
        if not self._in_body and self._head_bytes > self.limits.max_header_bytes:
            self.refuse(HEADERS_TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._waiting_since_s = self.loop.time()

    def on_headers_complete(self) -> None:
        if self._head_is_too_large():
            self.refuse(HEADERS_TOO_LARGE)
            return
        self._in_body = True
        self._body_bytes = 0
        # There is none before the first request, whatever uvicorn's types say.
        before = cast("RequestResponseCycle | None", self.cycle)
        self.cycle = self._exchange()
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self._app)
        else:
            # Sent before the last answer: its turn comes, and nothing more is read until then.
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self._app))

    def _exchange(self) -> Exchange:
        """The request whose head is whole, as the application will see it."""
        parser = self.parser
        assert parser is not None, "it has just called us"
        url = httptools.parse_url(self.url)
        version, path = parser.get_http_version(), url.path.decode("ascii")
        scope = cast("Message", self.scope)
        scope["http_version"] = version
        scope["method"] = parser.get_method().decode("ascii")
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""
        scope[TRANSPORT_KEY] = self.transport
        return Exchange(
            self.scope,
            self.transport,
            self.flow,
            self.logger,
            self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )

    def _head_is_too_large(self) -> bool:
        if len(self.headers) > self.limits.max_headers:
            return True
        # Counted only when so much came that it can be too large; some of it may be the body.
        return self._head_bytes > self.limits.max_header_bytes and (
            len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            > self.limits.max_header_bytes
        )

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._waiting_since_s = None
        self._in_body = False
        self._head_bytes = 0
        if not self._refused:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        self._answered_at_s = self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - ours says more
        if not self._refused:
            self.refuse(BAD_REQUEST)

    def refuse(self, kind: Kind) -> None:
        """Answer in the application's place, then hear nothing more from this client."""
        self._refused = True
        self._waiting_since_s = self.loop.time()
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and not cycle.response_complete:
            # The application learns that its client is gone.
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.abort()
                return
        request_id = new_request_id()
        body = msgspec.json.encode(kind.document(request_id=request_id.decode()))
        head = [
            (b"content-type", MEDIA_TYPE),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
            (b"x-request-id", request_id),
            *SAFETY,
        ]
        lines = b"".join(b"%s: %s\r\n" % header for header in head)
        self.transport.write(STATUS_LINE[kind.status] + lines + b"\r\n" + body)
        self.transport.write_eof()

    def sweep(self, now_s: float) -> None:
        """Once a second: is this client too slow?"""
        if self._waiting_since_s is None:
            return
        waited_s = now_s - self._waiting_since_s
        if self._refused:
            if waited_s > _LINGER_S:
                self.transport.abort()
        elif not self._in_body:
            if waited_s > self.limits.header_timeout.total_seconds():
                if self._head_bytes:
                    self.refuse(TIMED_OUT)
                else:
                    self.transport.close()
        elif self.cycle.response_complete:
            # Answered early; the client goes on sending what nobody reads.
            if self._body_bytes > _UNWANTED_BYTES or now_s - self._answered_at_s > _LINGER_S:
                self.transport.abort()
        elif not self.flow.read_paused:
            allowed_s = self.limits.body_timeout.total_seconds() + self._body_bytes / _SLOWEST_BODY
            if waited_s > allowed_s:
                self.refuse(TIMED_OUT)


class Server(uvicorn.Server):
    """Serves one gateway on one socket until it is told to stop."""

    def __init__(
        self,
        gateway: Gateway,
        settings: GatewaySettings,
        on_ready: Callable[[], None] = lambda: None,
        around: Callable[[ASGIApp], ASGIApp] = lambda app: app,
    ) -> None:
        """`around` may put something around the application, such as spans."""
        protocol: type[Connection] = type("Limited", (Connection,), {"limits": settings})
        # Below errors it tells what we tell better, and what strangers make it tell.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        super().__init__(
            uvicorn.Config(
                around(gateway),
                http=protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=2048,
                timeout_keep_alive=int(settings.keep_alive.total_seconds()) or 1,
                timeout_graceful_shutdown=int(settings.drain.total_seconds()) or 1,
            )
        )
        self._gateway = gateway
        self._on_ready = on_ready
        self._swept_at_s = 0.0

    def stop(self) -> None:
        """End: the first call lets requests finish, the second does not."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def on_tick(self, counter: int) -> bool:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._swept_at_s >= _SWEEP_S:
            self._swept_at_s = now_s
            for connection in cast("tuple[Connection, ...]", tuple(self.server_state.connections)):
                connection.sweep(now_s)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Listening ends first, so that a client that connects again finds another gateway.
        for server in self.servers:
            server.close()
        await self._gateway.streams.stop()
        await super().shutdown(sockets)

    async def run_until_stopped(self, listening: socket.socket) -> None:
        """Serve; signals are the caller's business."""
        # What is there now stays: looking through it again and again cost a fifth of a request.
        gc.collect()
        gc.freeze()
        # Requests leave next to nothing behind that counting does not free at once.
        gc.set_threshold(20_000, 20, 100)
        async with self._gateway.streams.running():
            await self._serve([listening])
