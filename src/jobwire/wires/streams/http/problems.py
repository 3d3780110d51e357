"""The problems of requests about jobs, besides those of every request."""

from typing import Final

from jobwire.api.problems import ProblemKind
from jobwire.job.errors import ContractError

JOB_NOT_FOUND: Final = ProblemKind(
    "job_not_found", 404, "there is no such job; a job is removed when its time to live is over"
)
BAD_IDEMPOTENCY_KEY: Final = ProblemKind(
    "bad_idempotency_key", 400, "Idempotency-Key must be 1 to 255 printable ASCII characters"
)
UNKNOWN_TASK: Final = ProblemKind(
    "unknown_task", 422, "no worker has or had this task; GET /v1/tasks lists the known tasks"
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
QUEUE_NOT_FOUND: Final = ProblemKind(
    "queue_not_found", 404, "there is no such queue; GET /v1/jobs/queues lists the queues"
)
UNKNOWN_QUEUE: Final = ProblemKind(
    "unknown_queue", 422, "the job cannot be put into this queue; GET /v1/jobs/queues lists them"
)
QUEUE_FULL: Final = ProblemKind("queue_full", 429, "too many jobs are waiting; retry later")
ALREADY_FINISHED: Final = ProblemKind("already_finished", 409, "the job has already ended")
NOT_RETRYABLE: Final = ProblemKind(
    "not_retryable", 409, "only a failed or canceled job can be retried"
)
CONTRACT_VIOLATED: Final = ProblemKind(
    ContractError.code, ContractError.status, "another program has written an invalid job"
)
