"""The problems of requests about jobs, besides those of every request."""

import re
from typing import Final

import msgspec

from jobwire.gateway.problems import INVALID, Problem, ProblemKind
from jobwire.job.errors import BackendUnavailable, ContractError
from jobwire.text import msgspec_fault

JOB_NOT_FOUND: Final = ProblemKind(
    "job_not_found", 404, "there is no such job; a job is removed when its time to live is over"
)
BAD_IDEMPOTENCY_KEY: Final = ProblemKind(
    "bad_idempotency_key", 400, "Idempotency-Key must be 1 to 255 printable ASCII characters"
)
UNKNOWN_TASK: Final = ProblemKind(
    "unknown_task", 422, "no worker has this task; GET /v1/tasks lists the available tasks"
)
INVALID_PAYLOAD: Final = ProblemKind(
    "invalid_payload", 422, "the payload must be a strict JSON object, at most 64 levels deep"
)
PAYLOAD_TOO_LARGE: Final = ProblemKind(
    "payload_too_large", 413, "the payload must not have more than 204800 bytes"
)
IDEMPOTENCY_MISMATCH: Final = ProblemKind(
    "idempotency_mismatch", 409, "this Idempotency-Key was used with another request body"
)
QUEUE_FULL: Final = ProblemKind("queue_full", 429, "too many jobs are waiting; retry later")
ALREADY_FINISHED: Final = ProblemKind("already_finished", 409, "the job has already ended")
NOT_RETRYABLE: Final = ProblemKind(
    "not_retryable", 409, "only a failed or canceled job can be retried"
)
UNAVAILABLE: Final = ProblemKind(
    BackendUnavailable.code,
    BackendUnavailable.status,
    "Valkey does not answer or cannot write; retry",
)
CONTRACT_VIOLATED: Final = ProblemKind(
    ContractError.code, ContractError.status, "another program has written an invalid job"
)

_MAX_MESSAGE: Final = 500
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


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
