"""One request and its response on a connection: what an ASGI application receives and sends.

A complete response is one write, and its head is checked once. A client that has closed its side of
the connection still gets its response. Created by `connection` for each request.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from jobwire.api.problems import INTERNAL, REASONS
from jobwire.gateway.flow_control import FlowControl
from jobwire.gateway.problems import MEDIA_TYPE, Problem
from jobwire.gateway.request import SAFETY, ASGIApp, Message, new_request_id
from jobwire.log import component

_BODILESS: Final = (204, 304)
MAX_UNWANTED_BYTES: Final = 1 << 20
"""The largest body after which a connection is used again, if the response came before its end."""
_MAX_COPIED: Final = 64 << 10
"""A larger body is not copied behind its head: many clients may read the same one."""
_STATUS_LINES: Final = {
    status: f"HTTP/1.1 {status} {reason}\r\n".encode() for status, reason in REASONS.items()
}
_DISCONNECT: Final = "http.disconnect"
_log = component("gateway.connection")


def refusal(problem: Problem) -> bytes:
    """The last response of a connection, to a request that no application answers."""
    request_id = new_request_id()
    body = problem.body(request_id.decode())
    headers = (
        (b"content-type", MEDIA_TYPE),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
        (b"x-request-id", request_id),
        *problem.headers,
        *SAFETY,
    )
    lines = b"".join(b"%s: %s\r\n" % header for header in headers)
    return _STATUS_LINES[problem.kind.status] + lines + b"\r\n" + body


class ResponseCycle:
    """One request and its response."""

    __slots__ = (
        "_changed",
        "_chunked",
        "_client_half_closed",
        "_date_line",
        "_expects_continue",
        "_flow",
        "_is_read",
        "_on_end",
        "_pending_head",
        "_scope",
        "_transport",
        "_unsent",
        "awaits_disconnect",
        "body",
        "disconnected",
        "keep_alive",
        "more_body",
        "response_complete",
        "response_started",
    )

    def __init__(
        self,
        scope: Message,
        transport: asyncio.Transport,
        flow: FlowControl,
        date_line: bytes,
        on_end: Callable[[], None],
        *,
        keep_alive: bool,
        expects_continue: bool,
    ) -> None:
        self._scope = scope
        self._transport = transport
        self._flow = flow
        self._date_line = date_line
        self._on_end = on_end
        self.keep_alive = keep_alive
        self._expects_continue = expects_continue
        self.body = bytearray()
        """The part of the body that the application has not received."""
        self.more_body = True
        self._is_read = False
        """The application has the whole body."""
        # What `receive` waits for; exists while it waits.
        self._changed: asyncio.Event | None = None
        self._client_half_closed = False
        self.disconnected = False
        self.awaits_disconnect = False
        """The application waits for the disconnect, as event streams do."""
        self.response_started = False
        self.response_complete = False
        self._chunked = False
        # Bytes of the body that must follow; None if its length is not declared.
        self._unsent: int | None = None
        # The head of a response of known length, until its body begins.
        self._pending_head = b""

    async def run(self, app: ASGIApp) -> None:
        """Answer by the application."""
        try:
            await app(self._scope, self.receive, self.send)
            if self.response_complete or self.disconnected:
                pass
            elif self._client_half_closed:
                self._transport.close()  # a stream has ended, or a wait for what is canceled
            else:
                _log.error("the application returned without a complete response")
                self._fail()
        except asyncio.CancelledError:
            self._fail()
            raise
        except Exception:  # noqa: BLE001 - it must not stay without a response
            _log.exception("the application failed")
            self._fail()
        finally:
            self._on_end()
            del self._on_end  # the connection refers to its last request

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return self._scope["headers"]

    def _fail(self) -> None:
        """End a response that the application did not complete."""
        if self.response_started:
            self._transport.abort()
        elif not self.disconnected:
            self.response_started = self.response_complete = True
            self._transport.write(refusal(Problem(INTERNAL)))
            self._transport.close()

    def wake(self) -> None:
        """There is more for `receive`."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def disconnect(self) -> None:
        """Tell the application that its client has left."""
        if not self.response_complete:
            self.disconnected = True
            self.wake()

    def client_half_closed(self) -> None:
        """The client has closed its side; it may still wait for this response."""
        self._client_half_closed = True
        self.wake()

    async def receive(self) -> Message:
        """ASGI: the next part of the body, then the disconnect."""
        if self._is_read:
            return await self._wait_disconnect()
        if self._expects_continue and not self._transport.is_closing():
            self._expects_continue = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self.more_body:
            self._flow.resume_reading()
            while not self.body and self.more_body and not self._is_over():
                await self._wait()
        if self._is_over():
            return {"type": _DISCONNECT}
        self._is_read = not self.more_body
        body, self.body = bytes(self.body), bytearray()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def _wait_disconnect(self) -> Message:
        """An application that receives after the whole body waits for the disconnect."""
        # A half-closed connection counts as a disconnect: nearly all are, and there may be no other
        # sign. It can still be answered.
        self.awaits_disconnect = True
        try:
            while not (self._is_over() or self._client_half_closed):
                self._flow.resume_reading()
                await self._wait()
        finally:
            self.awaits_disconnect = False
        return {"type": _DISCONNECT}

    def _is_over(self) -> bool:
        return self.disconnected or self.response_complete

    async def _wait(self) -> None:
        self._changed = self._changed or asyncio.Event()
        await self._changed.wait()

    async def send(self, message: Message) -> None:
        """ASGI: the head of the response, then the parts of its body."""
        if self._flow.write_paused and not self.disconnected:
            await self._flow.drain()
        if self.disconnected:
            return
        message_type = message["type"]
        if message_type == "http.response.start" and not self.response_started:
            self._begin(message["status"], message["headers"])
        elif (
            message_type == "http.response.body"
            and self.response_started
            and not self.response_complete
        ):
            self._continue(message)
        else:
            raise RuntimeError(f"ASGI message {message_type} is not expected in this state")

    def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.response_started = True
        if self.more_body and self._rest_is_large():
            self.keep_alive = False
        self._expects_continue = False
        parts = [_STATUS_LINES[status], self._date_line]
        lines = len(headers) + 2
        for name, value in headers:
            if name == b"content-length":
                self._unsent = int(value)
            parts += (name, b": ", value, b"\r\n")
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
            lines += 1
        # For HTTP/1.0 the end of the connection ends the response.
        if (
            self._unsent is None
            and status not in _BODILESS
            and self._scope["http_version"] != "1.0"
        ):
            self._chunked = True
            parts.append(b"transfer-encoding: chunked\r\n")
            lines += 1
        head = b"".join(parts)
        # A header value must not add another header.
        if not head.count(b"\n") == head.count(b"\r") == lines or b"\0" in head:
            raise ValueError("a header of the response contains a control character")
        self._pending_head = head + b"\r\n"
        if self._unsent is None:
            # The first event of a stream may come much later.
            self._write(b"")

    def _rest_is_large(self) -> bool:
        """An early response: whether the rest of the body is too large to be read and discarded
        before the next request, or may never come."""
        if self._expects_continue:
            return True
        for name, value in self._scope["headers"]:
            if name == b"content-length":
                return int(value) > MAX_UNWANTED_BYTES
        return True

    def _continue(self, message: Message) -> None:
        body: bytes = message.get("body", b"")
        more: bool = message.get("more_body", False)
        if self._scope["method"] == "HEAD":
            self._unsent = 0
            self._write(b"")
        elif self._chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            self._write(chunk if more else chunk + b"0\r\n\r\n")
        else:
            self._count(body)
            self._write(body)
        if not more:
            self._finish()

    def _count(self, body: bytes) -> None:
        if self._unsent is not None:
            self._unsent -= len(body)
            if self._unsent < 0:
                raise RuntimeError("the response is longer than its content-length")

    def _write(self, data: bytes) -> None:
        if self._pending_head:
            head, self._pending_head = self._pending_head, b""
            if len(data) > _MAX_COPIED:
                self._transport.write(head)
            else:
                data = head + data
        if data:
            self._transport.write(data)

    def _finish(self) -> None:
        if self._unsent:
            raise RuntimeError("the response is shorter than its content-length")
        self.response_complete = True
        self.wake()
