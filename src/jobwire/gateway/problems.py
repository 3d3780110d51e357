"""All errors of the HTTP API as RFC 9457 problem documents.

A `ProblemKind` has a stable `code`; the OpenAPI document lists the kinds of each route. A `Problem`
is raised anywhere inside a request. Features declare kinds of their own. Every text here is sent to
clients; internal details go to the log.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import msgspec

from jobwire.job.errors import BackendUnavailable
from jobwire.text import msgspec_fault

MEDIA_TYPE: Final = b"application/problem+json"

Headers = tuple[tuple[bytes, bytes], ...]
_MAX_MESSAGE: Final = 500
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """One kind of error, declared once."""

    code: str
    status: int
    detail: str
    """The text for the client unless the raising code has a more precise one."""

    @property
    def title(self) -> str:
        return HTTPStatus(self.status).phrase

    def document(self, detail: str = "", **more: object) -> dict[str, object]:
        """The body of the response."""
        return {
            "type": f"urn:jobwire:problem:{self.code}",
            "title": self.title,
            "status": self.status,
            "code": self.code,
            "detail": detail or self.detail,
            **more,
        }


class Problem(Exception):
    """Ends a request with an error response."""

    def __init__(
        self,
        kind: ProblemKind,
        detail: str = "",
        *,
        headers: Headers = (),
        more: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(kind.code, detail or kind.detail)
        self.kind = kind
        self.detail = detail or kind.detail
        self.headers = headers
        self.more = more or {}

    def body(self, request_id: str) -> bytes:
        """The encoded document."""
        document = self.kind.document(self.detail, **self.more, request_id=request_id)
        return msgspec.json.encode(document)


def retry_after(seconds: float) -> Headers:
    """The `Retry-After` header: whole seconds, at least one."""
    return ((b"retry-after", str(max(1, round(seconds + 0.5))).encode()),)


BAD_REQUEST: Final = ProblemKind("bad_request", 400, "this is not a valid HTTP request")
INVALID_JSON: Final = ProblemKind("invalid_json", 400, "the body is not valid JSON")
BAD_EVENT_ID: Final = ProblemKind("bad_event_id", 400, "Last-Event-ID is not an id of this stream")
UNAUTHORIZED: Final = ProblemKind(
    "unauthorized", 401, "send an API key: `Authorization: Bearer jw_…`; `jobwire key` makes one"
)
BAD_KEY: Final = ProblemKind("bad_key", 401, "this API key is not in the settings of this gateway")
BAD_TOKEN: Final = ProblemKind(
    "bad_token", 401, "this stream token is invalid or expired; request a new one"
)
FORBIDDEN: Final = ProblemKind("forbidden", 403, "this API key does not have the required scope")
CROSS_SITE: Final = ProblemKind(
    "cross_site", 403, "a page of another origin may not call this gateway; use an API key"
)
PROXIED: Final = ProblemKind(
    "proxied", 403, "forwarded by a proxy; without API keys only this machine is served"
)
NOT_FOUND: Final = ProblemKind("not_found", 404, "there is no such path")
WRONG_METHOD: Final = ProblemKind("method_not_allowed", 405, "this path does not have this method")
TIMED_OUT: Final = ProblemKind("request_timeout", 408, "the request arrived too slowly")
TOO_LARGE: Final = ProblemKind("too_large", 413, "the body is too large")
WRONG_MEDIA_TYPE: Final = ProblemKind("unsupported_media_type", 415, "send application/json")
ENCODED: Final = ProblemKind(
    "unsupported_encoding", 415, "send the body without a content encoding"
)
FOREIGN_HOST: Final = ProblemKind(
    "foreign_host", 421, "without API keys only the host name localhost is served"
)
INVALID: Final = ProblemKind("invalid_request", 422, "the request does not have the right form")
RATE_LIMITED: Final = ProblemKind("rate_limited", 429, "too many requests with this key; slow down")
TOO_MANY_STREAMS: Final = ProblemKind(
    "too_many_streams", 429, "too many open event streams with this key"
)
HEADERS_TOO_LARGE: Final = ProblemKind(
    "headers_too_large", 431, "the headers are too large or too many"
)
INTERNAL: Final = ProblemKind(
    "internal", 500, "internal error; the log of the gateway has it under the request id"
)
UNAVAILABLE: Final = ProblemKind(
    BackendUnavailable.code,
    BackendUnavailable.status,
    "a server behind this gateway does not answer or cannot write; retry",
)
NOT_READY: Final = ProblemKind(
    "not_ready", 503, "at least one part is not ready; `parts` has what to do"
)
STOPPING: Final = ProblemKind("stopping", 503, "this gateway is stopping; try again")

EVERYWHERE: Final = (CROSS_SITE, PROXIED, FOREIGN_HOST, HEADERS_TOO_LARGE, INTERNAL)
WITH_SCOPE: Final = (UNAUTHORIZED, BAD_KEY, FORBIDDEN, RATE_LIMITED)
WITH_BINARY_BODY: Final = (TIMED_OUT, TOO_LARGE, WRONG_MEDIA_TYPE, ENCODED)
WITH_BODY: Final = (INVALID_JSON, *WITH_BINARY_BODY, INVALID)
ON_STREAMS: Final = (BAD_EVENT_ID, BAD_TOKEN, TOO_MANY_STREAMS, STOPPING)


def invalid(place: str, pointer: str, message: str) -> Problem:
    """The problem of an invalid request, with the location of the fault."""
    # The message may quote a member name of any length.
    message = message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]}…"
    errors = [{"in": place, "pointer": pointer, "message": message}]
    where = f"{place} {pointer}".rstrip()
    return Problem(INVALID, f"{where}: {message}", more={"errors": errors})


def invalid_body(error: msgspec.ValidationError, place: str = "") -> Problem:
    """The same for an error of msgspec: its path, below `place`, becomes a JSON pointer."""
    problem, path = msgspec_fault(error)
    pointer = place + "".join(f"/{name or index}" for name, index in _STEP.findall(path))
    return invalid("body", pointer, problem)
