"""One client's connection: uvicorn's protocol class, with limits.

uvicorn stores any number of bytes and waits without limit. This class counts all bytes outside
bodies, queues a bounded number of pipelined requests, and has a time limit in every state. `server`
calls `sweep` once a second: a client that sends or reads too slowly is refused or disconnected.
docs/limits.md lists the limits, decision 0022 the parts of uvicorn in use.
"""

import asyncio
import socket
from datetime import timedelta
from typing import Any, Final, cast
from urllib.parse import unquote

import httptools
import msgspec

from jobwire.api.problems import BAD_REQUEST, HEADERS_TOO_LARGE, TIMED_OUT, ProblemKind
from jobwire.gateway.peer_socket import PeerSocket
from jobwire.gateway.problems import MEDIA_TYPE
from jobwire.gateway.request import PEER_KEY, SAFETY, TRANSPORT_KEY, Message, new_request_id
from jobwire.gateway.response_cycle import MAX_UNWANTED_BYTES, ResponseCycle
from jobwire.gateway.settings import GatewaySettings
from jobwire.gateway.uvicorn_internals import (
    HIGH_WATER_LIMIT,
    STATUS_LINE,
    ASGI3Application,
    HttpToolsProtocol,
    RequestResponseCycle,
)

_MIN_BYTES_PER_S: Final = 1024
"""The lowest rate at which a client may send a body or read a response."""
_MAX_QUEUED: Final = 16
"""Pipelined requests that wait for the response to an earlier one."""
_OVERHEAD_PER_BYTE: Final = 16
"""Bytes of chunk sizes, chunk extensions and trailers allowed per byte of a body."""
_MAX_UNSENT_BYTES: Final = 64 << 10
"""Unsent bytes of a response that the kernel may hold."""
_LINGER_S: Final = 2.0
"""How long a client may be silent after its last response; an immediate close could lose the
response in a TCP reset. A client that is still sending a body has `body_timeout` in all."""
_UNACKNOWLEDGED: Final = timedelta(seconds=30)
_MAX_DISCARDED_BYTES: Final = 32 << 20
"""Bytes of a body that are read and discarded after its response: many clients read the response
only when they have sent the body. Then reading stops, and the connection is reset `_LINGER_S`
later; a client can read a response that came before the reset."""
_VERSIONS: Final = frozenset({"1.0", "1.1"})


class HttpConnection(HttpToolsProtocol):
    """One client's connection."""

    limits: GatewaySettings

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._app: ASGI3Application = cast("Any", self).app  # its annotation is too wide
        # Bytes of the message that is being read, including its body.
        self._message_bytes = 0
        self._body_bytes = 0
        self._read_bytes = 0
        self._discarded_bytes = 0
        self._discarded_at_s = 0.0
        # Nothing more is parsed: a request was refused, or too many are queued.
        self._stopped = False
        # Since when bytes of a request are awaited; None if the request is complete.
        self._waiting_since_s: float | None = None
        self._in_body = False
        self._framing: list[bytes] = []
        self._trailers = 0
        # The window over which the rate of a body is measured; set by `sweep`.
        self._rate_since_s: float | None = None
        self._rate_bytes = 0
        self._flush_by_s: float | None = None
        self._answered_at_s = 0.0
        # The request that is being answered; `cycle` is the last one received.
        self._current_cycle: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._waiting_since_s = self.loop.time()
        self._peer = PeerSocket(transport)
        # Later than the limit for a client that does not read: `streams` counts those.
        _limit_socket(transport, self.limits.slow_client + _UNACKNOWLEDGED)

    def connection_lost(self, exc: Exception | None) -> None:
        # uvicorn disconnects only the last request received; an earlier one may be a stream.
        self.pipeline.clear()
        if self._current_cycle is not None:
            _mark_disconnected(self._current_cycle)
        super().connection_lost(exc)

    def eof_received(  # pyright: ignore[reportIncompatibleMethodOverride] - asyncio's signature
        self,
    ) -> bool:
        """The client has closed its side. Complete requests are still answered; our side stays open
        (True) until then."""
        current = self._current_cycle
        if current is None or current.response_complete or current.more_body:
            return False
        if self.pipeline and self.pipeline[0][0].more_body:
            self.pipeline.popleft()  # the last request is incomplete and stays so
        waiting = [*(cycle for cycle, _ in self.pipeline), current]
        waiting[0].keep_alive = False
        for cycle in cast("list[ResponseCycle]", waiting):
            cycle.client_half_closed()
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
        """Bytes after the last request of this connection, or of a body that was answered early:
        read some, so that the client can read its response before a reset, then stop reading."""
        self._discarded_bytes += size
        self._discarded_at_s = self.loop.time()
        if self._discarded_bytes > (_MAX_DISCARDED_BYTES if self._in_body else MAX_UNWANTED_BYTES):
            self.flow.pause_reading()

    def _overhead_is_too_large(self) -> bool:
        """Whether too many bytes of this message are outside its body."""
        if not self._in_body:
            return True
        overhead = self._message_bytes - self._body_bytes
        allowed = 2 * self.limits.max_header_bytes + _OVERHEAD_PER_BYTE * self._body_bytes
        return overhead > allowed

    def _feed(self, data: bytes) -> None:
        parser = self.parser
        assert parser is not None, "the parser exists as long as the connection"
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # No other protocol is supported, so the request is handled without its Upgrade header.
            # This parser would skip the body: a new one reads the request again.
            if self._stopped or parser.get_method() == b"CONNECT":
                self.refuse(BAD_REQUEST)
                return
            lines = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
            head = b"%b %b HTTP/1.1\r\n%b\r\n" % (parser.get_method(), self.url, b"".join(lines))
            self.parser = httptools.HttpRequestParser(self)
            self._feed(head + data[upgrade.args[0] :])

    def on_message_begin(self) -> None:
        if self._stopped:
            # httptools then stops parsing this read.
            raise RuntimeError("no further request is read on this connection")
        super().on_message_begin()
        self._framing.clear()
        self._waiting_since_s = self.loop.time()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:
            # A trailer. No route uses trailers, and a trailer must not pass for a header.
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
            return  # parsed again: see `_feed`
        self._in_body = True
        self._trailers = 0
        self._body_bytes = 0
        self._rate_since_s = None
        # None before the first request, although uvicorn's types exclude it.
        previous = cast("RequestResponseCycle | None", self.cycle)
        self.cycle = self._new_cycle()
        if previous is None or previous.response_complete:
            self._current_cycle = self.cycle
            self._start_asgi_task(self.cycle, self._app)
        else:
            self.pipeline.appendleft((self.cycle, self._app))
            if not cast("ResponseCycle", self._current_cycle).awaits_disconnect:
                # Reading pauses until the queue is empty. It goes on behind an event stream:
                # otherwise a disconnect would not be noticed.
                self.flow.pause_reading()

    def _framing_is_ambiguous(self, version: str) -> bool:
        """Whether a proxy could see another end of this body (RFC 9112, 6.1)."""
        return (
            version == "1.0"
            or len(self._framing) > 1
            or b"identity" in self._framing[0]
            or self._framing[0].count(b"chunked") != 1
        )

    def _new_cycle(self) -> ResponseCycle:
        """The request whose head is complete, as the application receives it."""
        parser = self.parser
        assert parser is not None, "called by the parser"
        url = httptools.parse_url(self.url)
        if url.host:
            # A host in the request target overrides the Host header (RFC 9112, 3.2.2).
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
        scope[PEER_KEY] = self._peer
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
        # Summed up only if enough bytes were received; part of them may be the body or other
        # messages of the same read.
        received = max(self._message_bytes, self._read_bytes)
        return received > self.limits.max_header_bytes and (
            len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            > self.limits.max_header_bytes
        )

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        cycle = self.cycle
        if self._stopped or cycle.response_complete:
            self._discarded_at_s = self.loop.time()
            return
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT or cycle is not self._current_cycle:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        if not self._in_body:
            return  # its head was refused, or is parsed again
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
            # The last request that is answered; its response has `connection: close`.
            self._stopped = True
            cycle.keep_alive = False

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        self._answered_at_s = self.loop.time()
        if self.transport.is_closing():
            return
        if self._current_cycle is not None and not self._current_cycle.keep_alive:
            self._close()
            return
        if self.pipeline:
            self._current_cycle, app = self.pipeline.pop()
            self._start_asgi_task(self._current_cycle, app)
        if not self.pipeline:
            self.flow.resume_reading()

    def _close(self) -> None:
        if not (self._stopped or self._in_body or self.flow.read_paused):
            self.transport.close()
            return
        # Closing with unread bytes would reset the connection, and the client could lose responses.
        self._stopped = True
        self._waiting_since_s = self.loop.time()
        self.transport.write_eof()
        self.flow.resume_reading()

    def shutdown(self) -> None:
        if self._stopped and self._waiting_since_s is not None:
            # The last response is written, and `sweep` no longer runs to end the wait.
            self.transport.close()
        else:
            super().shutdown()

    def resume_writing(self) -> None:
        self._flush_by_s = None
        super().resume_writing()

    def refuse(self, kind: ProblemKind) -> None:
        """Answer instead of the application; nothing more is parsed on this connection."""
        if self._stopped:
            return
        self._stopped = True
        self.pipeline.clear()
        cycle = self._current_cycle
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:
                # The fault came after a complete request that is being answered. A problem document
                # would pass for its response: the connection ends after that response instead.
                self._waiting_since_s = None
                cycle.keep_alive = False
                return
            _mark_disconnected(cycle)
            if cycle.response_started:
                self.transport.abort()
                return
        self._waiting_since_s = self._answered_at_s = self.loop.time()
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
        """Once a second: refuse or disconnect the client if it is too slow in its state."""
        if self.flow.write_paused or self.transport.is_closing():
            self._check_flush(now_s)
        if self._waiting_since_s is None:
            answered = self._current_cycle is None or self._current_cycle.response_complete
            if answered and now_s - self._answered_at_s > self.limits.keep_alive.total_seconds():
                self.transport.close()
            return
        if self._stopped or (self._in_body and self.cycle.response_complete):
            self._check_linger(now_s)
        elif not self._in_body:
            if now_s - self._waiting_since_s > self.limits.header_timeout.total_seconds():
                if self._message_bytes:
                    self.refuse(TIMED_OUT)
                else:
                    self.transport.close()
        else:
            self._check_rate(now_s)

    def _check_linger(self, now_s: float) -> None:
        """Disconnect a client that has its last response, or that still sends a body which was
        answered early: when it stops sending, or has sent for too long."""
        body_s = self.limits.body_timeout.total_seconds()
        limit_s = max(_LINGER_S, body_s) if self._in_body else _LINGER_S
        silent_s = now_s - max(self._answered_at_s, self._discarded_at_s)
        if silent_s > _LINGER_S or now_s - self._answered_at_s > limit_s:
            self.transport.abort()

    def _check_rate(self, now_s: float) -> None:
        """Refuse a body that stalls. Each window counts alone: a fast start must not allow a client
        to occupy memory for hours."""
        window_s = self.limits.body_timeout.total_seconds()
        if self._rate_since_s is not None and not self.flow.read_paused:
            if now_s - self._rate_since_s <= window_s:
                return
            if self._body_bytes - self._rate_bytes < window_s * _MIN_BYTES_PER_S:
                self.refuse(TIMED_OUT)
                return
        self._rate_since_s, self._rate_bytes = now_s, self._body_bytes

    def _check_flush(self, now_s: float) -> None:
        """Disconnect a client that does not read its response. Event streams have a shorter limit;
        on systems without TCP_USER_TIMEOUT this is the only one."""
        if self._flush_by_s is None:
            allowed_s = (self.limits.slow_client + _UNACKNOWLEDGED).total_seconds()
            unsent_s = self.transport.get_write_buffer_size() / _MIN_BYTES_PER_S
            self._flush_by_s = now_s + allowed_s + unsent_s
        elif now_s > self._flush_by_s:
            self.transport.abort()


def _mark_disconnected(cycle: RequestResponseCycle) -> None:
    """Report the disconnect to the application."""
    if not cycle.response_complete:
        cycle.disconnected = True
        cycle.message_event.set()


def _limit_socket(transport: asyncio.Transport, unacknowledged: timedelta) -> None:
    """End the connection if the peer does not acknowledge data in time, by default about 15 minutes
    for an unreachable peer. Bound what the kernel buffers for a client that does not read, by
    default megabytes, which no limit of ours counts."""
    peer = transport.get_extra_info("socket")
    if peer is None:
        return
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        limit_ms = int(unacknowledged.total_seconds() * 1000)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit_ms)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MAX_UNSENT_BYTES)
