"""What can go wrong with a request about jobs, beyond what can go wrong with any request."""

import re
from typing import Final

import msgspec

from jobwire.gateway.problems import INVALID, Problem, ProblemKind

JOB_NOT_FOUND: Final = ProblemKind(
    "job_not_found", 404, "there is no such job; a job is forgotten when its time to live is over"
)
BAD_IDEMPOTENCY_KEY: Final = ProblemKind(
    "bad_idempotency_key", 400, "Idempotency-Key must be 1 to 255 printable ASCII characters"
)
UNKNOWN_TASK: Final = ProblemKind(
    "unknown_task", 422, "no worker has this task; GET /v1/tasks lists those that can be asked for"
)
INVALID_PAYLOAD: Final = ProblemKind(
    "invalid_payload", 422, "the payload must be a JSON object, strict and not too deep"
)
PAYLOAD_TOO_LARGE: Final = ProblemKind(
    "payload_too_large", 413, "the payload must not have more than 204800 bytes"
)
IDEMPOTENCY_MISMATCH: Final = ProblemKind(
    "idempotency_mismatch", 409, "this Idempotency-Key has a job that was made from another request"
)
QUEUE_FULL: Final = ProblemKind("queue_full", 429, "too many jobs are waiting; come back later")
ALREADY_FINISHED: Final = ProblemKind(
    "already_finished", 409, "the job has ended; nothing can stop it"
)
NOT_RETRYABLE: Final = ProblemKind(
    "not_retryable", 409, "only a job that ended in error or was canceled can be run again"
)
UNAVAILABLE: Final = ProblemKind(
    "unavailable", 503, "the server under this gateway does not answer or cannot write; ask again"
)
CONTRACT_VIOLATED: Final = ProblemKind(
    "contract_violated", 502, "another program has written something that is no job"
)

_MAX_MESSAGE: Final = 500
_MSGSPEC: Final = re.compile(r"^(?P<problem>.*?)(?: - at `(?P<path>.*)`)?$", re.DOTALL)
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


def invalid(place: str, pointer: str, message: str) -> Problem:
    """The problem of a request that does not have the right form, with the place."""
    # It may hold a name of the caller's choice, however long.
    message = message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]}…"
    errors = [{"in": place, "pointer": pointer, "message": message}]
    where = f"{place} {pointer}".rstrip()
    return Problem(INVALID, f"{where}: {message}", more={"errors": errors})


def invalid_body(error: msgspec.ValidationError, place: str = "") -> Problem:
    """The same for what msgspec says: its path, below `place`, becomes a JSON pointer."""
    found = _MSGSPEC.match(str(error))
    assert found is not None
    steps = _STEP.findall(found["path"] or "")
    pointer = place + "".join(f"/{name or index}" for name, index in steps)
    return invalid("body", pointer, found["problem"])
