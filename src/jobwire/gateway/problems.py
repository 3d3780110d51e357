"""Ends a request with a problem document (RFC 9457).

A `Problem` of a kind (`api/problems.py`, or the operations of a system) is raised anywhere inside a
request. Its text is sent to clients; internal details go to the log.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec

from jobwire.api.problems import INTERNAL, INVALID, ProblemKind
from jobwire.job.errors import JobwireError
from jobwire.schema_hints import described, hint
from jobwire.text import msgspec_fault

MEDIA_TYPE: Final = b"application/problem+json"

Headers = tuple[tuple[bytes, bytes], ...]
_MAX_MESSAGE: Final = 500
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


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


def as_problem(error: Exception) -> Problem:
    """The problem of an exception. Our own errors have a code and a status; any other exception is
    `internal`, and its details go only to the log."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, JobwireError):
        kind = ProblemKind(error.code, error.status, error.message)
        return Problem(kind, headers=retry_after(1) if error.retryable else ())
    return Problem(INTERNAL)


def retry_after(seconds: float) -> Headers:
    """The `Retry-After` header: whole seconds, at least one."""
    return ((b"retry-after", str(max(1, round(seconds + 0.5))).encode()),)


def invalid(place: str, pointer: str, message: str) -> Problem:
    """The problem of an invalid request, with the location of the fault."""
    # The message may quote a member name of any length.
    message = message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]}…"
    errors = [{"in": place, "pointer": pointer, "message": message}]
    where = f"{place} {pointer}".rstrip()
    return Problem(INVALID, f"{where}: {message}", more={"errors": errors})


def invalid_body(
    error: msgspec.ValidationError, place: str = "", body_type: object = None
) -> Problem:
    """The same for an error of msgspec: its path, below `place`, becomes a JSON pointer. With the
    type of the body, the nearest name or the known ones are named."""
    problem, path = msgspec_fault(error)
    pointer = place + "".join(f"/{name or index}" for name, index in _STEP.findall(path))
    if body_type is not None:
        schema = _schema(body_type)
        if "matching regex" in problem and (words := described(schema, path)):
            problem = f"must be {words}"
        problem += hint(schema, path, problem)
    return invalid("body", pointer, problem)


@cache
def _schema(body_type: object) -> dict[str, Any]:
    return msgspec.json.schema(body_type)
