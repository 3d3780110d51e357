"""The kinds of errors that operations answer with (RFC 9457), and those of every system.

Each kind is declared once: here, or in the module of its system. `code` is stable and for programs.
`gateway/problems.py` raises them. Every text is sent to clients.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

REASONS: Final[Mapping[int, str]] = {
    **{status.value: status.phrase for status in HTTPStatus},
    # The names of RFC 9110, which Python has since 3.13.
    413: "Content Too Large",
    414: "URI Too Long",
    416: "Range Not Satisfiable",
    422: "Unprocessable Content",
}
"""The name of each status, in problems and in responses."""


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """One kind of error, declared once."""

    code: str
    status: int
    detail: str
    """The text for the client unless the raising code has a more precise one."""

    @property
    def title(self) -> str:
        return REASONS[self.status]

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
OTHER_USER: Final = ProblemKind(
    "other_user",
    401,
    "without API keys this gateway serves only the user who started it, and root; your connection "
    "comes from another user, or from a relay whose user is not known. The user who started it can "
    "make an API key (`jobwire key`), or admit every user of this machine by `gateway.local_users: "
    "any` (JOBWIRE_GATEWAY_LOCAL_USERS=any)",
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
TOO_MANY_BODIES: Final = ProblemKind(
    "too_many_bodies", 429, "request bodies of this key fill their share of the memory; retry"
)
TOO_MANY_REQUESTS: Final = ProblemKind(
    "too_many_requests",
    429,
    "this key has its share of all requests that this gateway answers at a time; retry",
)
HEADERS_TOO_LARGE: Final = ProblemKind(
    "headers_too_large", 431, "the headers are too large or too many"
)
INTERNAL: Final = ProblemKind(
    "internal", 500, "internal error; the log of the gateway has it under the request id"
)
UNAVAILABLE: Final = ProblemKind(
    "unavailable",
    503,
    "a server behind this gateway does not answer or cannot write; retry",
)
NOT_READY: Final = ProblemKind(
    "not_ready", 503, "at least one part is not ready; `parts` has what to do"
)
BUSY: Final = ProblemKind(
    "busy", 503, "request bodies fill the memory that this gateway has for them; retry"
)
DISPLACED: Final = ProblemKind(
    "displaced", 503, "the oldest request of the key with most ended for another key; retry"
)
STOPPING: Final = ProblemKind("stopping", 503, "this gateway is stopping; try again")

# What the gateway adds to the problems of an operation.
EVERYWHERE: Final = (CROSS_SITE, PROXIED, FOREIGN_HOST, HEADERS_TOO_LARGE, INTERNAL)
WITH_SCOPE: Final = (
    UNAUTHORIZED,
    BAD_KEY,
    OTHER_USER,
    FORBIDDEN,
    RATE_LIMITED,
    TOO_MANY_REQUESTS,
    DISPLACED,
)
WITH_BINARY_BODY: Final = (TIMED_OUT, TOO_LARGE, WRONG_MEDIA_TYPE, ENCODED)
WITH_BODY: Final = (INVALID_JSON, *WITH_BINARY_BODY, INVALID, TOO_MANY_BODIES, BUSY)
ON_STREAMS: Final = (BAD_EVENT_ID, BAD_TOKEN, TOO_MANY_STREAMS, STOPPING)
