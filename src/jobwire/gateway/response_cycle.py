"""One request and its response on a connection: uvicorn's class with another `send` and `receive`.

uvicorn needs two system calls for a response and searches every header for control characters. Here
a complete response is one write, and its head is checked once. A client that has closed its side of
the connection still gets its response. Created by `connection` for each request.
"""

from typing import Any, Final

from jobwire.gateway.request import Message
from jobwire.gateway.uvicorn_internals import STATUS_LINE, RequestResponseCycle

_BODILESS: Final = (204, 304)
MAX_UNWANTED_BYTES: Final = 1 << 20
"""The largest body after which a connection is used again, if the response came before its end."""


class ResponseCycle(RequestResponseCycle):
    """Receives the application's ASGI messages."""

    _pending_head = b""
    """The head of a response of known length, until its body begins."""
    _sized = False
    _is_read = False
    """The application has the whole body."""
    _client_half_closed = False
    awaits_disconnect = False
    """The application waits for the disconnect, as event streams do."""

    def client_half_closed(self) -> None:
        """The client has closed its side; it may still wait for this response."""
        self._client_half_closed = True
        self.message_event.set()

    async def receive(self) -> Any:  # ASGI: one of two typed dicts
        if self._is_read:
            return await self._wait_disconnect()
        if self.waiting_for_100_continue and not self.transport.is_closing():
            self.waiting_for_100_continue = False
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if not self.disconnected and not self.response_complete:
            if self.more_body:
                self.flow.resume_reading()
            await self.message_event.wait()
            self.message_event.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        self._is_read = not self.more_body
        body, self.body = bytes(self.body), bytearray()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def _wait_disconnect(self) -> Any:
        """An application that receives after the whole body waits for the disconnect."""
        if not (self.disconnected or self.response_complete or self._client_half_closed):
            self.awaits_disconnect = True
            self.flow.resume_reading()
            await self.message_event.wait()
        if not self.response_complete:
            # A half-closed connection counts as a disconnect: nearly all are, and there may be no
            # other sign.
            self.disconnected = True
            self.transport.close()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:  # ASGI: one of many typed dicts
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
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
        self.waiting_for_100_continue = False
        headers = self.default_headers + headers
        parts = [STATUS_LINE[status]]
        lines = len(headers) + 1
        for name, value in headers:
            if name == b"content-length":
                self.expected_content_length = int(value)
                self._sized = True
            parts += (name, b": ", value, b"\r\n")
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
            lines += 1
        # For HTTP/1.0 the end of the connection ends the response.
        if not self._sized and status not in _BODILESS and self.scope["http_version"] != "1.0":
            self.chunked_encoding = True
            parts.append(b"transfer-encoding: chunked\r\n")
            lines += 1
        head = b"".join(parts)
        # A header value must not add another header.
        if not head.count(b"\n") == head.count(b"\r") == lines or b"\0" in head:
            raise ValueError("a header of the response contains a control character")
        self._pending_head = head + b"\r\n"
        if not self._sized:
            # The first event of a stream may come much later.
            self._write(b"")

    def _rest_is_large(self) -> bool:
        """An early response: whether the rest of the body is too large to be read and discarded
        before the next request, or may never come."""
        if self.waiting_for_100_continue:
            return True
        for name, value in self.scope["headers"]:
            if name == b"content-length":
                return int(value) > MAX_UNWANTED_BYTES
        return True

    def _continue(self, message: Message) -> None:
        body: bytes = message.get("body", b"")
        more: bool = message.get("more_body", False)
        if self.scope["method"] == "HEAD":
            self.expected_content_length = 0
            self._write(b"")
        elif self.chunked_encoding:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            self._write(chunk if more else chunk + b"0\r\n\r\n")
        else:
            self._count(body)
            self._write(body)
        if not more:
            self._finish()

    def _count(self, body: bytes) -> None:
        if self._sized:
            self.expected_content_length -= len(body)
            if self.expected_content_length < 0:
                raise RuntimeError("the response is longer than its content-length")

    def _write(self, data: bytes) -> None:
        if self._pending_head:
            data, self._pending_head = self._pending_head + data, b""
        if data:
            self.transport.write(data)

    def _finish(self) -> None:
        if self.expected_content_length:
            raise RuntimeError("the response is shorter than its content-length")
        self.response_complete = True
        self.message_event.set()
        self.on_response()
