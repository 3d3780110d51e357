"""Exceptions as problem documents. Pure.

Our own errors have a code and a status; those of FastAPI and Starlette are translated; any other
exception becomes `internal`, and its details go only to the log.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from jobwire.api import problems
from jobwire.api.problems import ProblemKind
from jobwire.gateway.problems import Headers, Problem, retry_after
from jobwire.job.errors import JobwireError

_MAX_FAULTS: Final = 50
"""How many faults of one request are listed."""
_BY_STATUS: Final = {
    kind.status: kind
    for kind in (
        problems.BAD_REQUEST,
        problems.UNAUTHORIZED,
        problems.FORBIDDEN,
        problems.NOT_FOUND,
        problems.WRONG_METHOD,
        problems.TOO_LARGE,
        problems.WRONG_MEDIA_TYPE,
        problems.INVALID,
        problems.INTERNAL,
    )
}


def as_problem(error: Exception) -> Problem:
    """The problem document for an exception."""
    match error:
        case Problem():
            return error
        case JobwireError():
            kind = ProblemKind(error.code, error.status, error.message)
            return Problem(kind, headers=retry_after(1) if error.retryable else ())
        case RequestValidationError():
            return _invalid(error.errors())
        case HTTPException():
            # FastAPI wraps a Problem that is raised while it reads a body.
            if isinstance(error.__cause__, Problem):
                return error.__cause__
            headers = _headers(error.headers)
            return Problem(_kind(error.status_code), _detail(error), headers=headers)
        case _:
            return Problem(problems.INTERNAL)


def _kind(status: int) -> ProblemKind:
    known = _BY_STATUS.get(status)
    return known or ProblemKind(f"http_{status}", status, HTTPStatus(status).phrase)


def _detail(error: HTTPException) -> str:
    """The error's text, unless it is only the name of the status."""
    return "" if error.detail == HTTPStatus(error.status_code).phrase else str(error.detail)


def _headers(headers: Mapping[str, str] | None) -> Headers:
    return tuple((name.lower().encode(), value.encode()) for name, value in (headers or {}).items())


def _invalid(faults: Sequence[Mapping[str, Any]]) -> Problem:
    if any(fault["type"] == "json_invalid" for fault in faults):
        return Problem(problems.INVALID_JSON)
    errors = [
        {
            "in": str(fault["loc"][0]),
            "pointer": "".join(f"/{_escaped(part)}" for part in fault["loc"][1:]),
            "message": str(fault["msg"]),
        }
        for fault in faults[:_MAX_FAULTS]
    ]
    first = errors[0]
    detail = f"{first['in']} {first['pointer']}: {first['message']}"
    return Problem(problems.INVALID, detail, more={"errors": errors})


def _escaped(part: object) -> str:
    """One step of a JSON pointer (RFC 6901)."""
    return str(part).replace("~", "~0").replace("/", "~1")
