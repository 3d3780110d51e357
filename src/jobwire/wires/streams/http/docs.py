"""The routes of jobs in the OpenAPI document: one `Doc` each, with examples."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from jobwire.api.jobs import (
    BAD_IDEMPOTENCY_KEY,
    CONTRACT_VIOLATED,
    IDEMPOTENCY_MISMATCH,
    INVALID_PAYLOAD,
    JOB_NOT_FOUND,
    NOT_RETRYABLE,
    PAYLOAD_TOO_LARGE,
    QUEUE_FULL,
    QUEUE_NOT_FOUND,
    UNKNOWN_QUEUE,
    UNKNOWN_TASK,
)
from jobwire.api.problems import INVALID, UNAVAILABLE
from jobwire.gateway.routes import Doc, RouteParameter
from jobwire.gateway.wire_view import WireBody
from jobwire.wires.streams.contract import MAX_PAYLOAD_BYTES
from jobwire.wires.streams.http import fleet_schemas, openai_schemas, schemas

_TAG: Final = "jobs"
_FLEET: Final = "fleet"

MAX_JOB_BODY: Final = MAX_PAYLOAD_BYTES + 4096
"""The largest payload, and the other members."""
MAX_BATCH_BODY: Final = 8 << 20

_ID: Final = "0b7c1d52-7d0e-4c55-9a0f-2f6d1c1f7a10"
_NEW: Final[dict[str, object]] = {
    "job_id": _ID,
    "task": "chat",
    "status": "queued",
    "payload": {"prompt": "Say hello in one sentence."},
    "result": None,
    "error": None,
    "created_ts": 1767225600000,
    "started_ts": None,
    "updated_ts": 1767225600000,
    "ttl_s": 86400,
    "attempt": 1,
    "max_attempts": None,
    "timeout_s": None,
    "worker": None,
    "progress": None,
    "cancel_ts": None,
    "due_ts": None,
    "retry_of": None,
    "queue": "default",
}
_DONE: Final = {
    **_NEW,
    "status": "done",
    "result": {"text": "Hello!"},
    "started_ts": 1767225600004,
    "updated_ts": 1767225601204,
    "worker": "jobwire-host-4711-a1b2c3d4",
}
_REQUEST: Final = {"task": "chat", "payload": {"prompt": "Say hello in one sentence."}}

_IDEMPOTENCY_KEY: Final = RouteParameter(
    "Idempotency-Key",
    "header",
    "A second request with the same key and the same body returns the first job.",
    Annotated[str, Meta(pattern=r"^[\x20-\x7e]*$", min_length=1, max_length=255)],
    "order-4711",
)
_PREFER: Final = RouteParameter(
    "Prefer",
    "header",
    "`wait=N`: respond when the job has ended, or after N seconds (at most 60).",
    str,
    "wait=10",
)
# Empty, as a browser sends it before the first event: from the beginning.
_EventId = Annotated[str, Meta(pattern=r"^([0-9]{1,19}(-[0-9]{1,19})?)?$")]
_REPLAY: Final = "The existing job of this Idempotency-Key"
_SUBMITTING: Final = (
    BAD_IDEMPOTENCY_KEY,
    UNKNOWN_TASK,
    UNKNOWN_QUEUE,
    INVALID_PAYLOAD,
    IDEMPOTENCY_MISMATCH,
    QUEUE_FULL,
    UNAVAILABLE,
)

SUBMIT: Final = Doc(
    summary="Submit a job",
    tag=_TAG,
    body=schemas.JobRequestBody,
    body_example=_REQUEST,
    answer=schemas.JobBody,
    example=_NEW,
    status=202,
    also={200: f"{_REPLAY}, or a job that has ended while the request waited"},
    parameters=(_IDEMPOTENCY_KEY, _PREFER),
    problems=(*_SUBMITTING, PAYLOAD_TOO_LARGE),
)
BATCH: Final = Doc(
    summary="Submit up to 1000 jobs at once",
    tag=_TAG,
    body=schemas.Batch,
    body_example={"jobs": [{**_REQUEST, "idempotency_key": "order-4711"}]},
    answer=schemas.BatchAnswerBody,
    example={"results": [{"status": 202, "job_id": _ID}]},
    problems=(UNAVAILABLE,),
)
GET: Final = Doc(
    summary="The current state of a job",
    tag=_TAG,
    answer=schemas.JobBody,
    example=_DONE,
    parameters=(_PREFER,),
    problems=(JOB_NOT_FOUND, CONTRACT_VIOLATED, UNAVAILABLE),
)
EVENTS: Final = Doc(
    summary="Live events of a job",
    tag=_TAG,
    description=(
        "Server-sent events: `hello` first, then every event since the beginning (or since "
        "`Last-Event-ID`), each with its id; the stream ends after `done`, `error` or `canceled`. "
        "`gap` is sent where events may be missing."
    ),
    answer=schemas.ServerSentEvent,
    media_type="text/event-stream",
    example={
        "id": "1767225600000-0",
        "event": "queued",
        "data": '{"type":"queued","ts":1767225600000,"step":"gateway.enqueue","data":{}}',
    },
    also={204: "`Last-Event-ID` is the job's last event: no events follow, do not reconnect"},
    parameters=(
        RouteParameter(
            "Last-Event-ID",
            "header",
            "the id of the last event received",
            _EventId,
            "1767225600000-0",
        ),
        RouteParameter(
            "last_event_id",
            "query",
            "the same, for clients that cannot send headers",
            _EventId,
            "1767225600000-0",
        ),
        RouteParameter(
            "data",
            "query",
            "`plain`: only the event's data in `data:`; `message`: every event is named `message`, "
            "for an EventSource that does not know all types",
            Literal["plain", "whole", "message"],
            "plain",
        ),
    ),
    problems=(JOB_NOT_FOUND, INVALID, CONTRACT_VIOLATED, UNAVAILABLE),
)
RETRY: Final = Doc(
    summary="Retry a failed or canceled job as a new job",
    tag=_TAG,
    answer=schemas.JobBody,
    example={**_NEW, "retry_of": "5f1c1f7a-7d0e-4c55-9a0f-0b7c1d522f6d"},
    status=202,
    also={200: f"{_REPLAY}, or a job that has ended while the request waited"},
    parameters=(_IDEMPOTENCY_KEY, _PREFER),
    problems=(*_SUBMITTING, JOB_NOT_FOUND, NOT_RETRYABLE, CONTRACT_VIOLATED),
)
WIRE: Final = Doc(
    summary="The keys of a job, as they are on the server",
    tag=_TAG,
    description="For authors of other clients. Read-only; long values are cut, of the events "
    "the last 50 are shown.",
    answer=WireBody,
    example={
        "job_id": _ID,
        "wire": "streams",
        "now_ts": 1767225601204,
        "keys": [
            {
                "key": f"job:{_ID}",
                "type": "hash",
                "ttl_ms": 86_400_000,
                "size": 9,
                "fields": [{"name": "status", "value": "done"}],
                "command": ["HGETALL", f"job:{_ID}"],
                "path": f"/v1/jobs/{_ID}",
            }
        ],
    },
    problems=(JOB_NOT_FOUND, UNAVAILABLE),
)
TASKS: Final = Doc(
    summary="The tasks that can be submitted",
    tag=_FLEET,
    answer=fleet_schemas.TasksBody,
    example={
        "tasks": [
            {
                "name": "chat",
                "live": True,
                "queue": "default",
                "schema": {"type": "object"},
                "example": {"prompt": "?"},
            }
        ]
    },
    problems=(UNAVAILABLE,),
)
QUEUES: Final = Doc(
    summary="The queues",
    tag=_TAG,
    answer=fleet_schemas.JobQueuesBody,
    example={
        "queues": [
            {
                "name": "default",
                "paused": False,
                "waiting": 0,
                "running": 1,
                "oldest_waiting_ms": None,
                "workers": 2,
            }
        ]
    },
    problems=(UNAVAILABLE,),
)
PAUSE: Final = Doc(
    summary="Pause a queue: workers start none of its jobs",
    tag=_TAG,
    description="Running jobs continue, and new ones are accepted and wait.",
    answer=fleet_schemas.PauseAnswerBody,
    example={"queue": "billing", "paused": True, "warning": None},
    problems=(QUEUE_NOT_FOUND, UNAVAILABLE),
)
RESUME: Final = Doc(
    summary="Resume a paused queue",
    tag=_TAG,
    answer=fleet_schemas.PauseAnswerBody,
    example={"queue": "billing", "paused": False, "warning": None},
    problems=(QUEUE_NOT_FOUND, UNAVAILABLE),
)
PURGE: Final = Doc(
    summary="Cancel all jobs of a queue that wait or are delayed",
    tag=_TAG,
    description="With keys of several tenants, a key cancels the jobs of its own tenant.",
    answer=fleet_schemas.PurgeAnswerBody,
    example={"queue": "billing", "canceled": 12},
    problems=(QUEUE_NOT_FOUND, UNAVAILABLE),
)
CRONS: Final = Doc(
    summary="The cron entries of the workers, with their last and next runs",
    tag=_FLEET,
    answer=fleet_schemas.CronsBody,
    example={
        "crons": [
            {
                "name": "cleanup",
                "schedule": "*/5 * * * *",
                "tz": "UTC",
                "last_ts": 1_790_000_100_000,
                "next_ts": 1_790_000_400_000,
                "live": True,
            }
        ]
    },
    problems=(UNAVAILABLE,),
)
SCALE: Final = Doc(
    summary="How many workers are needed, for an autoscaler",
    tag=_FLEET,
    description="`load` rounded up is the number of workers with `slots` slots each that the jobs "
    "need now. Running jobs count, so that busy workers are not stopped. 503 if the server does "
    "not answer: never a wrong zero.",
    answer=fleet_schemas.ScaleBody,
    example={"waiting": 31, "running": 9, "slots": 10, "oldest_waiting_s": 2.4, "load": 4.0},
    problems=(INVALID, UNAVAILABLE),
)

_OPENAI: Final = "openai"
_OPENAI_ERRORS: Final = {
    400: "the task refuses the request",
    404: "there is no such model",
    429: "the model's server limits the rate",
    502: "the job failed",
    504: "the job took too long",
}
_CHAT_BODY: Final = {"model": "default", "messages": [{"role": "user", "content": "Hello"}]}
CHAT_COMPLETIONS: Final = Doc(
    summary="Answer a conversation, for clients of OpenAI's API",
    tag=_OPENAI,
    description=(
        "The task `chat` behind OpenAI's API. `stream: true` sends chunks. The job's id is in "
        "`x-job-id`; a client that disconnects cancels the job. Errors have OpenAI's form."
    ),
    body=openai_schemas.ChatCompletionRequest,
    body_example=_CHAT_BODY,
    answer=openai_schemas.ChatCompletion,
    problems=(UNKNOWN_TASK, INVALID_PAYLOAD, PAYLOAD_TOO_LARGE, QUEUE_FULL, UNAVAILABLE),
    error=openai_schemas.ErrorAnswer,
    errors=_OPENAI_ERRORS,
)
EMBEDDINGS: Final = Doc(
    summary="Compute vectors of texts, for clients of OpenAI's API",
    tag=_OPENAI,
    body=openai_schemas.EmbeddingsRequest,
    body_example={"model": "default", "input": ["a red apple"]},
    answer=openai_schemas.EmbeddingList,
    problems=(UNKNOWN_TASK, INVALID_PAYLOAD, PAYLOAD_TOO_LARGE, QUEUE_FULL, UNAVAILABLE),
    error=openai_schemas.ErrorAnswer,
    errors=_OPENAI_ERRORS,
)
MODELS: Final = Doc(
    summary="The model names for clients of OpenAI's API",
    tag=_OPENAI,
    answer=openai_schemas.ModelList,
)
