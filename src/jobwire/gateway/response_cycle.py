"""One request and its answer on a connection: uvicorn's, but for the way out and for the end.

uvicorn writes the head of an answer and its body by two calls of the system, and searches every
header for what it must not hold; of a small request that is no small part. Here a whole
answer leaves in one write, and its head is looked at once. A client that says nothing more is
still answered. Made by `connection` for each request.
"""

from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from jobwire.gateway.request import Message

_BODILESS: Final = (204, 304)


class ResponseCycle(RequestResponseCycle):
    """Takes an application's messages, as ASGI has them."""

    _held = b""
    """The head of an answer of known length, until the first of its body is there."""
    _sized = False
    _is_read = False
    """The application has the whole body."""
    _is_silent = False
    awaits_disconnect = False
    """The application waits for its client to leave, as event streams do."""

    def client_half_closed(self) -> None:
        """The client has closed its side; it may still wait for this answer."""
        self._is_silent = True
        self.message_event.set()

    async def receive(self) -> Any:  # as ASGI has it: one of two typed dicts
        if self._is_read:
            return await self._left()
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

    async def _left(self) -> Any:
        """Who asks for more than the whole body waits for its client to leave, as streams do."""
        if not (self.disconnected or self.response_complete or self._is_silent):
            self.awaits_disconnect = True
            self.flow.resume_reading()
            await self.message_event.wait()
        if not self.response_complete:
            # One that is merely silent counts as gone: nearly all are, and no other sign may come.
            self.disconnected = True
            self.transport.close()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:  # as ASGI has it: one of many typed dicts
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        said = message["type"]
        if said == "http.response.start" and not self.response_started:
            self._begin(message["status"], message["headers"])
        elif said == "http.response.body" and self.response_started and not self.response_complete:
            self._go_on(message)
        else:
            raise RuntimeError(f"{said} is out of turn")

    def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.response_started = True
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
        # To HTTP/1.0 the end of the connection is the end of the answer.
        if not self._sized and status not in _BODILESS and self.scope["http_version"] != "1.0":
            self.chunked_encoding = True
            parts.append(b"transfer-encoding: chunked\r\n")
            lines += 1
        head = b"".join(parts)
        # Whatever a header says, it cannot say another one.
        if not head.count(b"\n") == head.count(b"\r") == lines or b"\0" in head:
            raise ValueError("a header of the answer holds a control character")
        self._held = head + b"\r\n"
        if not self._sized:
            # An event stream may have nothing to say for long.
            self._write(b"")

    def _go_on(self, message: Message) -> None:
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
                raise RuntimeError("the answer is longer than it said")

    def _write(self, data: bytes) -> None:
        if self._held:
            data, self._held = self._held + data, b""
        if data:
            self.transport.write(data)

    def _finish(self) -> None:
        if self.expected_content_length:
            raise RuntimeError("the answer is shorter than it said")
        self.response_complete = True
        self.message_event.set()
        self.on_response()  # the connection goes on, or closes itself
