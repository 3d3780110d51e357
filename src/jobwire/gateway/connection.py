"""One client's connection: an asyncio protocol around the parser of httptools, with limits.

It counts all bytes outside bodies, queues a bounded number of pipelined requests, and has a time
limit in every state. `server` calls `sweep` once a second: a client that sends or reads too slowly
is refused or disconnected. docs/limits.md lists the limits, decision 0145 says why it is our own.
"""

import asyncio
import socket
from collections import deque
from datetime import timedelta
from typing import Final, cast
from urllib.parse import unquote

import httptools

from jobwire.api.problems import BAD_REQUEST, HEADERS_TOO_LARGE, TIMED_OUT, ProblemKind
from jobwire.gateway.accounts import Accounts, Ownership
from jobwire.gateway.flow_control import FlowControl
from jobwire.gateway.memory import MemoryBudgets
from jobwire.gateway.peer_socket import PeerSocket
from jobwire.gateway.problems import Problem
from jobwire.gateway.proxies import Proxies, network
from jobwire.gateway.request import (
    OWNERSHIP_KEY,
    PEER_KEY,
    TRANSPORT_KEY,
    ASGIApp,
    Message,
)
from jobwire.gateway.response_cycle import MAX_UNWANTED_BYTES, ResponseCycle, refusal
from jobwire.gateway.settings import GatewaySettings

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
response in a TCP reset. A client that is still sending a body has `body_timeout` in all. How long a
client that has closed its side may wait for the beginning of a response."""
_UNACKNOWLEDGED: Final = timedelta(seconds=30)
_MAX_DISCARDED_BYTES: Final = 32 << 20
"""Bytes of a body that are read and discarded after its response: many clients read the response
only when they have sent the body. Then reading stops, and the connection is reset `_LINGER_S`
later; a client can read a response that came before the reset."""
_MAX_UNREAD_BYTES: Final = 64 << 10
"""Bytes of a body that wait for the application; above this the client waits."""
_MAX_LENGTH_DIGITS: Final = 20
"""Of a Content-Length: those of the largest that the parser accepts."""
_VERSIONS: Final = frozenset({"1.0", "1.1"})
_ASGI: Final = {"version": "3.0", "spec_version": "2.3"}


class ServerState:
    """What all connections of a server share."""

    def __init__(self, app: ASGIApp, limits: GatewaySettings, accounts: Accounts) -> None:
        self.app = app
        self.limits = limits
        self.accounts = accounts
        self.connections = cast("dict[HttpConnection, None]", accounts.connections)
        self.proxies = Proxies(limits.proxies)
        self.date_line = b""
        """The header of every response, set by `server` once a second."""
        self.closed_unread = 0
        """Connections closed since the last tick for responses that their clients did not read."""
        self._unread: dict[HttpConnection, int] = {}
        self._unread_bytes = 0
        self._max_unread_bytes = MemoryBudgets.of(limits).unread

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """One for each request that the application is answering."""
        return [each.task for each in self.connections if each.task is not None]

    def hold_unread(self, connection: "HttpConnection", size: int) -> None:
        """A client has this many bytes of its response still to read. Of all such clients those
        that have been reading for the longest time are disconnected when there is no space."""
        self._unread_bytes += size - self._unread.pop(connection, 0)
        self._unread[connection] = size
        while self._unread_bytes > self._max_unread_bytes and len(self._unread) > 1:
            oldest = next(iter(self._unread))
            self.release_unread(oldest)
            oldest.transport.abort()
            self.closed_unread += 1

    def release_unread(self, connection: "HttpConnection") -> None:
        """The client has read its response, or has left."""
        self._unread_bytes -= self._unread.pop(connection, 0)


class HttpConnection(asyncio.Protocol):
    """One client's connection."""

    __slots__ = (
        "_answered_at_s",
        "_body_bytes",
        "_client",
        "_current_cycle",
        "_cycle",
        "_discarded_at_s",
        "_discarded_bytes",
        "_expects_continue",
        "_flow",
        "_flush_by_s",
        "_framing",
        "_half_closed_at_s",
        "_headers",
        "_in_body",
        "_is_lost",
        "_limits",
        "_local",
        "_loop",
        "_message_bytes",
        "_parser",
        "_peer",
        "_pipeline",
        "_rate_bytes",
        "_rate_since_s",
        "_read_bytes",
        "_state",
        "_stopped",
        "_trailers",
        "_url",
        "_waiting_since_s",
        "is_proxied",
        "ownership",
        "task",
        "transport",
        "used",
    )

    transport: asyncio.Transport
    ownership: Ownership
    is_proxied: bool

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._limits = state.limits
        self._loop = asyncio.get_running_loop()
        self._parser = self._new_parser()
        # The request whose head is being read.
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._framing: list[bytes] = []
        self._expects_continue = False
        # Bytes of the message that is being read, including its body.
        self._message_bytes = 0
        self._body_bytes = 0
        self._read_bytes = 0
        self._discarded_bytes = 0
        self._discarded_at_s = 0.0
        # Nothing more is parsed: a request was refused, or too many are queued.
        self._stopped = False
        # Since when bytes of a request are awaited; None if the request is complete.
        self._waiting_since_s: float | None = self._loop.time()
        self._in_body = False
        self._trailers = 0
        # The window over which the rate of a body is measured; set by `sweep`.
        self._rate_since_s: float | None = None
        self._rate_bytes = 0
        self._flush_by_s: float | None = None
        self._answered_at_s = 0.0
        self._half_closed_at_s: float | None = None
        self._is_lost = False
        self.used = False
        self.task: asyncio.Task[None] | None = None
        """Of the request that is being answered; the next one begins when it has ended."""
        # The last request received, the one that is being answered, and those between them.
        self._cycle: ResponseCycle | None = None
        self._current_cycle: ResponseCycle | None = None
        self._pipeline: deque[ResponseCycle] = deque()

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # Bytes after a request with `Connection: close` are no fault: it is answered.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        state = self._state
        self._flow = FlowControl(self.transport)
        self._client = _address(transport, "peername")
        address = self._client[0] if self._client else ""
        self.is_proxied = state.proxies.has(address)
        self.ownership = Ownership(state.accounts, state.accounts.peer(network(address)))
        state.accounts.enter(self)
        self._local = _address(transport, "sockname")
        self._peer = PeerSocket(self.transport)
        # Later than the limit for a client that does not read: `streams` counts those.
        _limit_socket(self.transport, self._limits.slow_client + _UNACKNOWLEDGED)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        self._is_lost = True
        if self.task is None:
            self._state.accounts.leave(self)
        self._state.release_unread(self)
        self._pipeline.clear()
        # The last request received may be another one than that which is being answered.
        for cycle in (self._cycle, self._current_cycle):
            if cycle is not None:
                cycle.disconnect()
        self._flow.resume_writing()
        del self._parser  # it refers to this connection

    @property
    def forwarded_address(self) -> str | None:
        """Of a proxy's connection: the address for which its request was forwarded, or the proxy's;
        None while it carries no request."""
        cycle = self._current_cycle
        if self.task is None or cycle is None:
            return None
        own = self._client[0] if self._client else ""
        return self._state.proxies.client(cycle.headers) or network(own)

    @property
    def awaits_end(self) -> bool:
        """Whether the request does nothing but wait."""
        return self._current_cycle is not None and self._current_cycle.awaits_disconnect

    def stop(self, problem: Problem | None = None) -> None:
        """Reset the connection and cancel its request; the problem is its answer if none has
        begun."""
        cycle = self._current_cycle
        is_over = self._stopped or self.transport.is_closing()
        if problem is None or cycle is None or cycle.response_started or is_over:
            self.transport.abort()
        else:
            self._stopped = True
            self._pipeline.clear()
            cycle.disconnect()
            self._answer_last(problem)
        if self.task is not None:
            self.task.cancel()

    def eof_received(self) -> bool:
        """The client has closed its side. Complete requests are still answered; our side stays open
        (True) until then."""
        current = self._current_cycle
        if current is None or current.response_complete or current.more_body:
            return False
        if self._pipeline and self._pipeline[0].more_body:
            self._pipeline.popleft()  # the last request is incomplete and stays so
        waiting = [*self._pipeline, current]
        waiting[0].keep_alive = False
        for cycle in waiting:
            cycle.client_half_closed()
        self._half_closed_at_s = self._loop.time()
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
        if self._message_bytes > self._limits.max_header_bytes and self._overhead_is_too_large():
            self.refuse(HEADERS_TOO_LARGE)

    def _discard(self, size: int) -> None:
        """Bytes after the last request of this connection, or of a body that was answered early:
        read some, so that the client can read its response before a reset, then stop reading."""
        self._discarded_bytes += size
        self._discarded_at_s = self._loop.time()
        if self._discarded_bytes > (_MAX_DISCARDED_BYTES if self._in_body else MAX_UNWANTED_BYTES):
            self._flow.pause_reading()

    def _overhead_is_too_large(self) -> bool:
        """Whether too many bytes of this message are outside its body."""
        if not self._in_body:
            return True
        overhead = self._message_bytes - self._body_bytes
        allowed = 2 * self._limits.max_header_bytes + _OVERHEAD_PER_BYTE * self._body_bytes
        return overhead > allowed

    def _feed(self, data: bytes) -> None:
        parser = self._parser
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # No other protocol is supported, so the request is handled without its Upgrade header.
            # This parser would skip the body: a new one reads the request again.
            if self._stopped or parser.get_method() == b"CONNECT":
                self.refuse(BAD_REQUEST)
                return
            lines = [b"%b: %b\r\n" % header for header in self._headers if header[0] != b"upgrade"]
            version = parser.get_http_version().encode()
            head = b"%b %b HTTP/%b\r\n" % (parser.get_method(), self._url, version)
            self._parser = self._new_parser()
            self._feed(b"".join((head, *lines, b"\r\n", data[upgrade.args[0] :])))

    def on_message_begin(self) -> None:
        if self._stopped:
            # httptools then stops parsing this read.
            raise RuntimeError("no further request is read on this connection")
        self._url = b""
        self._headers = []
        self._framing.clear()
        self._expects_continue = False
        self._waiting_since_s = self._loop.time()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:
            # A trailer. No route uses trailers, and a trailer must not pass for a header.
            self._trailers += 1
            if self._trailers > self._limits.max_headers and not self._stopped:
                self.refuse(HEADERS_TOO_LARGE)
            return
        name = name.lower()
        value = value.rstrip(b" \t")  # the parser leaves it
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects_continue = True
        elif name == b"transfer-encoding":
            self._framing.append(value.lower())
        elif name == b"content-length" and len(value) > _MAX_LENGTH_DIGITS:
            raise ValueError("a Content-Length of leading zeros")  # httptools stops parsing
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._head_is_too_large():
            self.refuse(HEADERS_TOO_LARGE)
            return
        version = self._parser.get_http_version()
        if version not in _VERSIONS or (self._framing and self._framing_is_ambiguous(version)):
            self.refuse(BAD_REQUEST)
            return
        if self._parser.should_upgrade():
            return  # parsed again: see `_feed`
        self._in_body = True
        self._trailers = 0
        self._body_bytes = 0
        self._rate_since_s = None
        self._cycle = cycle = self._new_cycle(version)
        if self.task is None:
            self._start(cycle)
        else:
            self._pipeline.appendleft(cycle)
            if not self.awaits_end:
                # Reading pauses until the queue is empty. It goes on behind an event stream:
                # otherwise a disconnect would not be noticed.
                self._flow.pause_reading()

    def _start(self, cycle: ResponseCycle) -> None:
        self._current_cycle = cycle
        self.task = self._loop.create_task(cycle.run(self._state.app))

    def _framing_is_ambiguous(self, version: str) -> bool:
        """Whether a proxy could see another end of this body (RFC 9112, 6.1)."""
        return (
            version == "1.0"
            or len(self._framing) > 1
            or b"identity" in self._framing[0]
            or self._framing[0].count(b"chunked") != 1
        )

    def _new_cycle(self, version: str) -> ResponseCycle:
        """The request whose head is complete, as the application receives it."""
        url = httptools.parse_url(self._url)
        if url.host:
            # A host in the request target overrides the Host header (RFC 9112, 3.2.2). A second
            # Host header stays, and is refused.
            name = b"[%b]" % url.host if b":" in url.host else url.host
            host = b"%b:%d" % (name, url.port) if url.port else name
            self._headers = [
                (key, host if key == b"host" else value) for key, value in self._headers
            ]
        raw_path = url.path or b"/"
        path = raw_path.decode("ascii")
        scope: Message = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": self._local,
            "client": self._client,
            "scheme": "http",
            "method": self._parser.get_method().decode("ascii"),
            "root_path": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": url.query or b"",
            "headers": self._headers,
            TRANSPORT_KEY: self.transport,
            PEER_KEY: self._peer,
            OWNERSHIP_KEY: self.ownership,
        }
        return ResponseCycle(
            scope,
            self.transport,
            self._flow,
            self._state.date_line,
            self._on_end,
            keep_alive=version != "1.0" and self._parser.should_keep_alive(),
            expects_continue=self._expects_continue and version != "1.0",
        )

    def _head_is_too_large(self) -> bool:
        if len(self._headers) > self._limits.max_headers:
            return True
        # Summed up only if enough bytes were received; part of them may be the body or other
        # messages of the same read.
        received = max(self._message_bytes, self._read_bytes)
        return received > self._limits.max_header_bytes and (
            len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers)
            > self._limits.max_header_bytes
        )

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        cycle = self._cycle
        if self._stopped or cycle is None or cycle.response_complete:
            self._discarded_at_s = self._loop.time()
            return
        cycle.body += body
        if len(cycle.body) > _MAX_UNREAD_BYTES or cycle is not self._current_cycle:
            self._flow.pause_reading()
        cycle.wake()

    def on_message_complete(self) -> None:
        if not self._in_body:
            return  # its head was refused, or is parsed again
        self._waiting_since_s = None
        self._in_body = False
        self._message_bytes = 0
        if self._stopped:
            return
        cycle = self._cycle
        assert cycle is not None, "its head was accepted"
        if not cycle.response_complete:
            cycle.more_body = False
            cycle.wake()
        if len(self._pipeline) >= _MAX_QUEUED:
            # The last request that is answered; its response has `connection: close`.
            self._stopped = True
            cycle.keep_alive = False

    def _on_end(self) -> None:
        """The task of the request has ended; the next one may begin."""
        self.task = None
        self.used = True
        self.ownership.end()
        if self._is_lost:
            self._state.accounts.leave(self)
        cycle = self._current_cycle
        if cycle is None or not cycle.response_complete or self.transport.is_closing():
            return
        self._answered_at_s = self._loop.time()
        if not cycle.keep_alive:
            self._close()
            return
        if self._pipeline:
            self._start(self._pipeline.pop())
        if not self._pipeline:
            self._flow.resume_reading()

    def _close(self) -> None:
        if not (self._stopped or self._in_body or self._flow.read_paused):
            self.transport.close()
            return
        # Closing with unread bytes would reset the connection, and the client could lose responses.
        self._stopped = True
        self._waiting_since_s = self._loop.time()
        self.transport.write_eof()
        self._flow.resume_reading()

    def shutdown(self) -> None:
        """The server stops: close the connection after the response that is being written."""
        lingers = self._stopped and self._waiting_since_s is not None
        if lingers or self._cycle is None or self._cycle.response_complete:
            self.transport.close()
        else:
            self._cycle.keep_alive = False

    def pause_writing(self) -> None:
        self._flow.pause_writing()
        size = self.transport.get_write_buffer_size()
        if size > _MAX_UNSENT_BYTES:  # event streams have less, and limits of their own
            self._state.hold_unread(self, size)

    def resume_writing(self) -> None:
        self._flush_by_s = None
        self._state.release_unread(self)
        self._flow.resume_writing()

    def refuse(self, kind: ProblemKind) -> None:
        """Answer instead of the application; nothing more is parsed on this connection."""
        if self._stopped:
            return
        self._stopped = True
        self._pipeline.clear()
        cycle = self._current_cycle
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:
                # The fault came after a complete request that is being answered. A problem document
                # would pass for its response: the connection ends after that response instead.
                self._waiting_since_s = None
                cycle.keep_alive = False
                return
            cycle.disconnect()
            if cycle.response_started:
                self.transport.abort()
                return
        self._answer_last(Problem(kind))

    def _answer_last(self, problem: Problem) -> None:
        self._waiting_since_s = self._answered_at_s = self._loop.time()
        self.transport.write(refusal(problem))
        self.transport.write_eof()

    def sweep(self, now_s: float) -> None:
        """Once a second: refuse or disconnect the client if it is too slow in its state."""
        if self._half_closed_at_s is not None and now_s - self._half_closed_at_s > _LINGER_S:
            self._check_half_closed()
        if self._flow.write_paused or self.transport.is_closing():
            self._check_flush(now_s)
        if self._waiting_since_s is None:
            if (
                self.task is None
                and now_s - self._answered_at_s > self._limits.keep_alive.total_seconds()
            ):
                self.transport.close()
            return
        cycle = self._cycle
        if self._stopped or (self._in_body and cycle is not None and cycle.response_complete):
            self._check_linger(now_s)
        elif not self._in_body:
            if now_s - self._waiting_since_s > self._limits.header_timeout.total_seconds():
                if self._message_bytes:
                    self.refuse(TIMED_OUT)
                else:
                    self.transport.close()
        else:
            self._check_rate(now_s)

    def _check_half_closed(self) -> None:
        """Disconnect a client that has closed its side, unless it is being answered: it has most
        likely gone."""
        cycle = self._current_cycle
        if cycle is None or not cycle.response_started:
            self.transport.abort()

    def _check_linger(self, now_s: float) -> None:
        """Disconnect a client that has its last response, or that still sends a body which was
        answered early: when it stops sending, or has sent for too long."""
        body_s = self._limits.body_timeout.total_seconds()
        limit_s = max(_LINGER_S, body_s) if self._in_body else _LINGER_S
        silent_s = now_s - max(self._answered_at_s, self._discarded_at_s)
        if silent_s > _LINGER_S or now_s - self._answered_at_s > limit_s:
            self.transport.abort()

    def _check_rate(self, now_s: float) -> None:
        """Refuse a body that stalls. Each window counts alone: a fast start must not allow a client
        to occupy memory for hours."""
        window_s = self._limits.body_timeout.total_seconds()
        if self._rate_since_s is not None and not self._flow.read_paused:
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
            allowed_s = (self._limits.slow_client + _UNACKNOWLEDGED).total_seconds()
            unsent_s = self.transport.get_write_buffer_size() / _MIN_BYTES_PER_S
            self._flush_by_s = now_s + allowed_s + unsent_s
        elif now_s > self._flush_by_s:
            self.transport.abort()


def _address(transport: asyncio.BaseTransport, name: str) -> tuple[str, int] | None:
    """The peer's or our own address, as ASGI has it."""
    found: tuple[str, int] | None = transport.get_extra_info(name)
    return found and found[:2]


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
