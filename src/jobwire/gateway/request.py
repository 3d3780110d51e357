"""One request: its principal, its body, its response.

Created by `app` for every request; the first argument of every endpoint. Every response is sent
through it, so that all have the default headers.
"""

import asyncio
import itertools
import re
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qs

from jobwire.api.problems import BAD_EVENT_ID, BAD_REQUEST, TOO_LARGE, WRONG_MEDIA_TYPE
from jobwire.gateway.auth import ANONYMOUS, Principal
from jobwire.gateway.limits import BodyBudget
from jobwire.gateway.peer_socket import uid_of_peer
from jobwire.gateway.problems import MEDIA_TYPE, Headers, Problem

Message = MutableMapping[str, Any]  # ASGI: the type of a value depends on its key
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Message, Receive, Send], Awaitable[None]]
T = TypeVar("T")

JSON: Final = b"application/json"
MOUNT_KEY: Final = "jobwire.mount"
"""Scope key of the path under which the gateway is mounted, set by `app`."""
TRANSPORT_KEY: Final = "jobwire.transport"
"""Scope key of the connection's transport, set by `connection`."""
OWNERSHIP_KEY: Final = "jobwire.ownership"
"""Scope key of the `Ownership` of the connection, set by `connection`."""
PEER_KEY: Final = "jobwire.peer"
"""Scope key of the `PeerSocket` of the connection, set by `connection`."""

# On every response; a header that a route sets overrides it.
SAFETY: Final[Headers] = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_SAFE: Final = frozenset(name for name, _ in SAFETY)
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,128}")
# A request id is unique, not secret: a random part per process, and a counter.
_PROCESS: Final = secrets.token_hex(5).encode()
_COUNT: Final = itertools.count(1)
_MAX_PARAMETERS: Final = 64
_EVENT_ID: Final = re.compile(r"[\x20-\x7e]{1,128}")


def new_request_id() -> bytes:
    """The id of a request without a valid `X-Request-ID`."""
    return b"%s%06x" % (_PROCESS, next(_COUNT))


def _too_many_parameters() -> Problem:
    return Problem(BAD_REQUEST, f"the query has more than {_MAX_PARAMETERS} parameters")


class ClientGone(Exception):
    """The client disconnected before its response."""


class Reply(NamedTuple):
    """A complete response."""

    body: bytes = b""
    status: int = 200
    headers: Headers = ()
    media_type: bytes = JSON


class HttpRequest:
    """One request."""

    __slots__ = (
        "_held",
        "_held_by",
        "_received",
        "budget",
        "content",
        "finished",
        "headers",
        "max_body",
        "params",
        "principal",
        "receive",
        "request_id",
        "route",
        "scope",
        "send",
        "status",
    )

    def __init__(self, scope: Message, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        given = self.headers.get(b"x-request-id")
        self.request_id: bytes = (
            new_request_id() if given is None or not _REQUEST_ID.fullmatch(given) else given
        )
        self.params: tuple[str, ...] = ()
        """The path parameters, in order."""
        self.principal: Principal = ANONYMOUS
        """Set by `accounts.prove`."""
        self.max_body = 0
        self.budget: BodyBudget | None = None
        """Set by `admission`, before any body is read."""
        self._held = 0
        self._held_by = ""
        self._received = 0
        self.content = b""
        """The body, once `body` has read it: for an endpoint that gets it decoded."""
        self.route = ""
        """The route's method and path template, for metrics."""
        self.status = 0
        """The status of the response; 0 until it has started."""
        self.finished = False

    @property
    def method(self) -> str:
        return self.scope["method"]

    @property
    def path(self) -> str:
        """Below `mount`."""
        return self.scope["path"]

    def peer_uid(self) -> int | None:
        """The user of this machine who opened the connection; None if that is not certain."""
        peer = self.scope.get(PEER_KEY)
        if peer is None:  # on a server of others
            return uid_of_peer(self.scope.get("client"), self.scope.get("server"))
        return peer.uid

    @property
    def mount(self) -> str:
        """Where another application has mounted the gateway, for example `/jobs`; else empty."""
        return self.scope.get(MOUNT_KEY, "")

    def check_query(self) -> None:
        """Refuse a query with too many parameters before it is parsed."""
        query: bytes = self.scope["query_string"]
        if query.count(b"&") >= _MAX_PARAMETERS:
            raise _too_many_parameters()

    def query(self, name: str) -> str | None:
        """The last value of a query parameter."""
        text: bytes = self.scope["query_string"]
        if not text:
            return None
        try:
            found = parse_qs(
                text.decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_PARAMETERS
            )
        except ValueError:
            raise _too_many_parameters() from None
        values = found.get(name)
        return values[-1] if values else None

    def last_event_id(self) -> str | None:
        """The id of the last event that the client received: the header, or `?last_event_id=`
        (or `?last_id=`, as some clients write it)."""
        header = self.headers.get(b"last-event-id")
        given = header.decode("latin-1") if header is not None else self.query_event_id()
        if not given:
            return None
        if not _EVENT_ID.fullmatch(given):
            raise Problem(BAD_EVENT_ID)
        return given

    def query_event_id(self) -> str | None:
        """The same from the query only."""
        return self.query("last_event_id") or self.query("last_id")

    async def while_present(self, waiting: Awaitable[T]) -> T | None:
        """Wait, but not longer than the client does: None if it has left, or if it has closed its
        side and may still be answered. Whatever a route waits for is waited for here."""
        done = asyncio.ensure_future(waiting)
        left = asyncio.ensure_future(self._left())
        try:
            await asyncio.wait((done, left), return_when=asyncio.FIRST_COMPLETED)
            return done.result() if done.done() else None
        finally:
            done.cancel()
            left.cancel()

    async def _left(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def body(self, media_type: bytes | None = JSON) -> bytes:
        """The whole body; a Problem if it is too large or of another media type."""
        if media_type is not None:
            self.require_media_type(media_type)
        message = await self.receive()
        # Nearly all bodies arrive in one part.
        if message["type"] == "http.request" and not message.get("more_body"):
            body: bytes = message.get("body", b"")
        else:
            body = await self._all_parts(message)
        if len(body) > self.max_body:
            raise self.too_large()
        self._hold(len(body))
        self.content = body
        return body

    async def chunks(self) -> AsyncGenerator[bytes]:
        """The body in parts as they arrive, for a body that is not held in memory.

        The connection reads at most 64 KiB and one read ahead: while the route does not ask for the
        next part, the client waits. ClientGone ends a body whose client leaves or stalls.
        """
        more = True
        while more:
            message = await self.counted_receive()
            if message["type"] != "http.request":
                raise ClientGone
            more = message.get("more_body", False)
            if part := message.get("body"):
                yield part

    async def buffered_body(self) -> bytes:
        """The whole body, for a verifier; the route can still read it."""
        body = await self.body(None)
        received: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        receive = self.receive

        async def replay() -> Message:
            return received.pop() if received else await receive()

        self.receive = replay
        return body

    async def _all_parts(self, message: Message) -> bytes:
        """The body that starts with this message; reading stops once it exceeds the limit."""
        parts = bytearray()
        while message["type"] == "http.request":
            parts += message.get("body", b"")
            if not message.get("more_body") or len(parts) > self.max_body:
                return bytes(parts)
            self._hold(len(parts))
            message = await self.receive()
        raise ClientGone

    def _hold(self, size: int) -> None:
        """Count the bytes of the body in memory; a Problem if the budget has no space for them."""
        more = size - self._held
        if self.budget is not None and more > 0:
            if not self._held:
                # A verifier may read the body before there is a principal.
                self._held_by = self.principal.key
            self.budget.take(self._held_by, more, self._held)
            self._held = size

    def release_body(self) -> None:
        """The request has ended."""
        if self.budget is not None and self._held:
            self.budget.release(self._held_by, self._held)
            self._held = 0

    def require_media_type(self, media_type: bytes) -> None:
        """Refuse a body with another Content-Type; one without is accepted."""
        given = self.headers.get(b"content-type", media_type).partition(b";")[0]
        if given.strip().lower() != media_type:
            raise Problem(WRONG_MEDIA_TYPE, f"send {media_type.decode()}")

    async def counted_receive(self) -> Message:
        """ASGI `receive` that enforces the route's body limit."""
        message = await self.receive()
        if message["type"] == "http.request":
            self._received += len(message.get("body", b""))
            if self._received > self.max_body:
                raise self.too_large()
        return message

    def too_large(self) -> Problem:
        """The problem for a body over this route's limit."""
        return Problem(TOO_LARGE, f"the body must not have more than {self.max_body} bytes")

    async def reply(self, reply: Reply) -> None:
        """Send a complete response."""
        await self.start(
            reply.status,
            (
                (b"content-type", reply.media_type),
                (b"content-length", b"%d" % len(reply.body)),
                *reply.headers,
            ),
        )
        self.finished = True
        await self.send({"type": "http.response.body", "body": reply.body})

    async def reply_nothing(self, headers: Headers = ()) -> None:
        """Answer 204: an EventSource does not reconnect after it."""
        await self.start(204, headers)
        await self.end()

    async def end(self) -> None:
        """End a response that has started."""
        self.finished = True
        await self.send({"type": "http.response.body", "body": b""})

    async def start(self, status: int, headers: Headers) -> None:
        """Start a response; its body follows by `send`."""
        self.status = status
        await self.send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": self.with_default_headers(headers),
            }
        )

    def with_default_headers(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """A route's headers, and those of every response."""
        merged = [*headers, (b"x-request-id", self.request_id)]
        names = {name for name, _ in headers}
        if _SAFE.isdisjoint(names):
            merged += SAFETY
        else:
            merged += [header for header in SAFETY if header[0] not in names]
        return merged

    def abort(self) -> None:
        """Close the connection of an incomplete response, so that it does not pass for complete."""
        transport = self.scope.get(TRANSPORT_KEY)
        if transport is not None:
            transport.abort()

    async def refuse(self, problem: Problem) -> None:
        """Answer with a problem document."""
        body = problem.body(self.request_id.decode())
        await self.reply(Reply(body, problem.kind.status, problem.headers, MEDIA_TYPE))
