"""One client's connection: uvicorn's, with limits on what a client may do to it.

uvicorn keeps whatever it is sent and waits for ever for what does not come. This one counts all
bytes outside bodies, queues a bounded number of pipelined requests, and has a time limit in every
state. `server` calls `sweep` once a second: a client that sends or reads too slowly is refused or
disconnected. docs/limits.md lists the bounds.
"""

import asyncio
import socket
from datetime import timedelta
from typing import Any, Final, cast
from urllib.parse import unquote

import httptools
import msgspec
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from jobwire.gateway.problems import (
    BAD_REQUEST,
    HEADERS_TOO_LARGE,
    MEDIA_TYPE,
    TIMED_OUT,
    ProblemKind,
)
from jobwire.gateway.request import SAFETY, TRANSPORT_KEY, Message, new_request_id
from jobwire.gateway.response_cycle import ResponseCycle
from jobwire.gateway.settings import GatewaySettings

_MIN_BYTES_PER_S: Final = 1024
"""The slowest pace at which a client may send a body or read an answer."""
_MAX_QUEUED: Final = 16
"""Pipelined requests that wait for the answer to the one before them."""
_OVERHEAD_PER_BYTE: Final = 16
"""Bytes of chunk sizes, chunk extensions and trailers for each byte of a body."""
_MAX_UNSENT_BYTES: Final = 64 << 10
"""What the system may hold of an answer before it has been sent once."""
_LINGER_S: Final = 2.0
"""How long a refused client may take to read why; cutting it off at once would lose the answer."""
_SILENCE: Final = timedelta(seconds=30)
_UNWANTED_BYTES: Final = 1 << 20
"""How much of a body is still read after its request was answered, and of anything after the last
request of a connection."""
_VERSIONS: Final = frozenset({"1.0", "1.1"})


class HttpConnection(HttpToolsProtocol):
    """One client's connection."""

    limits: GatewaySettings

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._app: ASGI3Application = cast("Any", self).app  # whose annotation says too much
        # Bytes of the message that is being read, its body too.
        self._message_bytes = 0
        self._body_bytes = 0
        self._read_bytes = 0
        self._discarded_bytes = 0
        # Nothing more is parsed: a request was refused, or too many are queued.
        self._stopped = False
        # Since when we wait for bytes of a request; None while it is whole.
        self._waiting_since_s: float | None = None
        self._in_body = False
        self._framing: list[bytes] = []
        self._trailers = 0
        # The window over which the pace of a body is measured; set by `sweep`.
        self._pace_since_s: float | None = None
        self._pace_bytes = 0
        self._flush_by_s: float | None = None
        self._answered_at_s = 0.0
        # The request that is being answered; `cycle` is the last one that came.
        self._answering: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._waiting_since_s = self.loop.time()
        # Later than one that merely does not read, which is told apart and counted.
        _give_up_on_silence(transport, self.limits.slow_client + _SILENCE)
        _limit_unsent(transport)

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
        for each in cast("list[ResponseCycle]", waiting):
            each.client_half_closed()
        return True

    def data_received(self, data: bytes) -> None:
        size = len(data)
        if self._stopped:
            self._discard(size)
            return
        self._read_bytes = size
        self._message_bytes += size
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self.refuse(BAD_REQUEST)
        if self._message_bytes > self.limits.max_header_bytes and self._overhead_is_too_large():
            self.refuse(HEADERS_TOO_LARGE)

    def _discard(self, size: int) -> None:
        """Bytes after the last request of this connection: read some, so that the client can read
        its answer before it is reset, then stop reading."""
        self._discarded_bytes += size
        if self._discarded_bytes > _UNWANTED_BYTES:
            self.flow.pause_reading()

    def _overhead_is_too_large(self) -> bool:
        """Whether too many bytes of this message are not its body."""
        if not self._in_body:
            return True
        overhead = self._message_bytes - self._body_bytes
        allowed = 2 * self.limits.max_header_bytes + _OVERHEAD_PER_BYTE * self._body_bytes
        return overhead > allowed

    def _feed(self, data: bytes) -> None:
        parser = self.parser
        assert parser is not None, "it lives as long as the connection"
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade as asked:
            # No other protocol is spoken here, so the request counts as if it had not asked for
            # one. The parser would skip its body: another reads it again.
            if self._stopped or parser.get_method() == b"CONNECT":
                self.refuse(BAD_REQUEST)
                return
            lines = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
            head = b"%b %b HTTP/1.1\r\n%b\r\n" % (parser.get_method(), self.url, b"".join(lines))
            self.parser = httptools.HttpRequestParser(self)
            self._feed(head + data[asked.args[0] :])

    def on_message_begin(self) -> None:
        if self._stopped:
            # httptools ends the parsing of this read.
            raise RuntimeError("no further request is read on this connection")
        super().on_message_begin()
        self._framing.clear()
        self._waiting_since_s = self.loop.time()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:
            # A trailer. Nobody asks for one, and what comes last must not pass for a header.
            self._trailers += 1
            if self._trailers > self.limits.max_headers and not self._stopped:
                self.refuse(HEADERS_TOO_LARGE)
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        elif name == b"transfer-encoding":
            self._framing.append(value.lower())
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._head_is_too_large():
            self.refuse(HEADERS_TOO_LARGE)
            return
        version = self.parser.get_http_version()
        if version not in _VERSIONS or (self._framing and self._framing_is_ambiguous(version)):
            self.refuse(BAD_REQUEST)
            return
        if self.parser.should_upgrade():
            return  # read again: see `_feed`
        self._in_body = True
        self._trailers = 0
        self._body_bytes = 0
        self._pace_since_s = None
        # There is none before the first request, whatever uvicorn's types say.
        before = cast("RequestResponseCycle | None", self.cycle)
        self.cycle = self._exchange()
        if before is None or before.response_complete:
            self._answering = self.cycle
            self._start_asgi_task(self.cycle, self._app)
        else:
            self.pipeline.appendleft((self.cycle, self._app))
            answering = cast("ResponseCycle", self._answering)
            if not answering.awaits_disconnect:
                # Nothing more is read until the queue is empty. Behind an event stream reading
                # goes on, since that is how the end of its client is noticed.
                self.flow.pause_reading()

    def _framing_is_ambiguous(self, version: str) -> bool:
        """Whether another reader could see another end of this body (RFC 9112, 6.1)."""
        return (
            version == "1.0"
            or len(self._framing) > 1
            or b"identity" in self._framing[0]
            or self._framing[0].count(b"chunked") != 1
        )

    def _exchange(self) -> ResponseCycle:
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
        return ResponseCycle(
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
        # Counted only when so much came that it can be too large; some of it may be the body, or
        # other messages of the same read.
        came = max(self._message_bytes, self._read_bytes)
        return came > self.limits.max_header_bytes and (
            len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            > self.limits.max_header_bytes
        )

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        cycle = self.cycle
        if self._stopped or cycle.response_complete:
            return
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT or cycle is not self._answering:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        if not self._in_body:
            return  # its head was refused, or is to be read again
        self._waiting_since_s = None
        self._in_body = False
        self._message_bytes = 0
        if self._stopped:
            return
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.more_body = False
            cycle.message_event.set()
        if len(self.pipeline) >= _MAX_QUEUED:
            # The last request that is answered here; its answer says `connection: close`.
            self._stopped = True
            cycle.keep_alive = False

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        self._answered_at_s = self.loop.time()
        if self.transport.is_closing():
            return
        if self._answering is not None and not self._answering.keep_alive:
            self._close()
            return
        if self.pipeline:
            self._answering, app = self.pipeline.pop()
            self._start_asgi_task(self._answering, app)
        if not self.pipeline:
            self.flow.resume_reading()

    def _close(self) -> None:
        if not (self._stopped or self._in_body or self.flow.read_paused):
            self.transport.close()
            return
        # Closing with bytes unread would reset the connection, and the client could lose answers.
        self._stopped = True
        self._waiting_since_s = self.loop.time()
        self.transport.write_eof()
        self.flow.resume_reading()

    def shutdown(self) -> None:
        if self._stopped and self._waiting_since_s is not None:
            # Its last answer is written; no sweep would end the wait for the client any more.
            self.transport.close()
        else:
            super().shutdown()

    def resume_writing(self) -> None:
        self._flush_by_s = None
        super().resume_writing()

    def refuse(self, kind: ProblemKind) -> None:
        """Answer in the application's place, then hear nothing more from this client."""
        if self._stopped:
            return
        self._stopped = True
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
        """Once a second: is this client too slow for the state that it is in?"""
        if self.flow.write_paused or self.transport.is_closing():
            self._check_flush(now_s)
        if self._waiting_since_s is None:
            answered = self._answering is None or self._answering.response_complete
            if answered and now_s - self._answered_at_s > self.limits.keep_alive.total_seconds():
                self.transport.close()
            return
        waited_s = now_s - self._waiting_since_s
        if self._stopped:
            if waited_s > _LINGER_S:
                self.transport.abort()
        elif not self._in_body:
            if waited_s > self.limits.header_timeout.total_seconds():
                if self._message_bytes:
                    self.refuse(TIMED_OUT)
                else:
                    self.transport.close()
        elif self.cycle.response_complete:
            # Answered early; the client goes on sending what nobody reads.
            if self._body_bytes > _UNWANTED_BYTES or now_s - self._answered_at_s > _LINGER_S:
                self.transport.abort()
        else:
            self._check_pace(now_s)

    def _check_pace(self, now_s: float) -> None:
        """Refuse a body that stalls. A quick start buys no time for later: a client could make us
        hold what it sent at once for hours."""
        window_s = self.limits.body_timeout.total_seconds()
        if self._pace_since_s is not None and not self.flow.read_paused:
            if now_s - self._pace_since_s <= window_s:
                return
            if self._body_bytes - self._pace_bytes < window_s * _MIN_BYTES_PER_S:
                self.refuse(TIMED_OUT)
                return
        self._pace_since_s, self._pace_bytes = now_s, self._body_bytes

    def _check_flush(self, now_s: float) -> None:
        """Disconnect a client that does not read its answer. Event streams have a shorter limit of
        their own; systems without TCP_USER_TIMEOUT have only this one."""
        if self._flush_by_s is None:
            allowed_s = (self.limits.slow_client + _SILENCE).total_seconds()
            unsent_s = self.transport.get_write_buffer_size() / _MIN_BYTES_PER_S
            self._flush_by_s = now_s + allowed_s + unsent_s
        elif now_s > self._flush_by_s:
            self.transport.abort()


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


def _limit_unsent(transport: asyncio.Transport) -> None:
    """The system would take megabytes for a client that does not read before it tells us: memory
    that no buffer of ours counts."""
    peer = transport.get_extra_info("socket")
    if peer is not None and hasattr(socket, "TCP_NOTSENT_LOWAT"):
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MAX_UNSENT_BYTES)
