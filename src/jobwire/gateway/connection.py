"""One client's connection: uvicorn's, with limits on what a client may do to it.

uvicorn keeps whatever headers it is sent and waits for ever for those that do not come. This one
counts the head of a request, takes trailers for what they are, and is looked at once a second by
`server`: whoever sends its headers or its body too slowly is told so and let go.
"""

import asyncio
import socket
from datetime import timedelta
from typing import Any, Final, cast
from urllib.parse import unquote

import httptools
import msgspec
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from jobwire.gateway.call import SAFETY, TRANSPORT_KEY, Message, new_request_id
from jobwire.gateway.exchange import Exchange
from jobwire.gateway.problems import (
    BAD_REQUEST,
    HEADERS_TOO_LARGE,
    MEDIA_TYPE,
    TIMED_OUT,
    Kind,
)
from jobwire.gateway.settings import GatewaySettings

_SLOWEST_BODY: Final = 1024
"""Bytes a second that even the slowest client must manage."""
_LINGER_S: Final = 2.0
"""How long a refused client may take to read why; cutting it off at once would lose the answer."""
_SILENCE: Final = timedelta(seconds=30)
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
        self._trailers = 0
        self._answered_at_s = 0.0
        # The request that is being answered; `cycle` is the last one that came.
        self._answering: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._waiting_since_s = self.loop.time()
        # Later than one that merely does not read, which is told apart and counted.
        _give_up_on_silence(transport, self.limits.slow_client + _SILENCE)

    def connection_lost(self, exc: Exception | None) -> None:
        # uvicorn tells the last request that came; one before it may be a stream that never ends.
        self.pipeline.clear()
        if self._answering is not None:
            _tell_gone(self._answering)
        super().connection_lost(exc)

    def eof_received(  # pyright: ignore[reportIncompatibleMethodOverride] - asyncio asks for it
        self,
    ) -> bool:
        """The client has closed its side. What it asked for in whole, it gets: our side stays open
        (True) until then."""
        answering = self._answering
        if answering is None or answering.response_complete or answering.more_body:
            return False
        if self.pipeline and self.pipeline[0][0].more_body:
            self.pipeline.popleft()  # the last that came, and its rest will not
        waiting = [*(cycle for cycle, _ in self.pipeline), answering]
        waiting[0].keep_alive = False
        for each in cast("list[Exchange]", waiting):
            each.fall_silent()
        return True

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._head_bytes += len(data)
        self._unset_keepalive_if_required()
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self.refuse(BAD_REQUEST)
        if not self._in_body and self._head_bytes > self.limits.max_header_bytes:
            self.refuse(HEADERS_TOO_LARGE)

    def _feed(self, data: bytes) -> None:
        parser = self.parser
        assert parser is not None, "it lives as long as the connection"
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade as asked:
            # No other protocol is spoken here, so the request counts as if it had not asked for
            # one. The parser would skip its body: another reads it again.
            if self._refused or parser.get_method() == b"CONNECT":
                self.refuse(BAD_REQUEST)
                return
            lines = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
            head = b"%b %b HTTP/1.1\r\n%b\r\n" % (parser.get_method(), self.url, b"".join(lines))
            self.parser = httptools.HttpRequestParser(self)
            self._feed(head + data[asked.args[0] :])

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._waiting_since_s = self.loop.time()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:
            # A trailer. Nobody asks for one, and what comes last must not pass for a header.
            self._trailers += 1
            if self._trailers > self.limits.max_headers and not self._refused:
                self.refuse(HEADERS_TOO_LARGE)
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._head_is_too_large():
            self.refuse(HEADERS_TOO_LARGE)
            return
        if self.parser.should_upgrade():
            return  # read again: see `_feed`
        self._in_body = True
        self._trailers = 0
        self._body_bytes = 0
        # There is none before the first request, whatever uvicorn's types say.
        before = cast("RequestResponseCycle | None", self.cycle)
        self.cycle = self._exchange()
        if before is None or before.response_complete:
            self._answering = self.cycle
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
        if url.host:
            # Where the target itself names a host, that one is meant.
            port = b":%d" % url.port if url.port else b""
            self.headers[:] = [header for header in self.headers if header[0] != b"host"]
            self.headers.append((b"host", url.host + port))
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
        if not self._in_body:
            return  # its head was refused, or is to be read again
        self._waiting_since_s = None
        self._in_body = False
        self._head_bytes = 0
        if not self._refused:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        self._answered_at_s = self.loop.time()
        if self.pipeline:
            self._answering = self.pipeline[-1][0]
        super().on_response_complete()

    def refuse(self, kind: Kind) -> None:
        """Answer in the application's place, then hear nothing more from this client."""
        if self._refused:
            return
        self._refused = True
        self.pipeline.clear()
        cycle = self._answering
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:
                # What is wrong came after a whole request: its answer must not be taken for that
                # one's, so the connection ends with it.
                self._waiting_since_s = None
                cycle.keep_alive = False
                return
            _tell_gone(cycle)
            if cycle.response_started:
                self.transport.abort()
                return
        self._waiting_since_s = self.loop.time()
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


def _tell_gone(cycle: RequestResponseCycle) -> None:
    """The application learns that nobody waits for its answer."""
    if not cycle.response_complete:
        cycle.disconnected = True
        cycle.message_event.set()


def _give_up_on_silence(transport: asyncio.Transport, after: timedelta) -> None:
    """A client that vanished without a word says nothing more, and would be written to for a
    quarter of an hour: what it does not acknowledge in time ends the connection."""
    peer = transport.get_extra_info("socket")
    if peer is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        limit_ms = int(after.total_seconds() * 1000)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit_ms)
