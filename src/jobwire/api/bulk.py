"""Retry and cancel of many jobs that have something in common."""

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from jobwire.api.jobs import JOBS, UNKNOWN_TASK, Whole
from jobwire.api.operation import Operation
from jobwire.api.problems import UNAVAILABLE

MAX_BULK: Final = 1_000
MAX_BULK_SCANNED: Final = 10_000
_CURSOR: Final = r"^[0-9]{1,16}-[\x21-\x7e]{1,512}$(?!\n)"

# ── requests ─────────────────────────────────────────────────────────────────────────────────────

_Limit = Annotated[Whole, Meta(ge=1, le=MAX_BULK, description="how many at most; default 1000")]
_Cursor = Annotated[
    Annotated[str, Meta(pattern=_CURSOR)] | None,
    Meta(description="`cursor` of the previous answer", extra={"fault": "is not a cursor"}),
]
_DryRun = Annotated[bool, Meta(description="only count them")]
_Tenant = Annotated[
    str | None, Meta(description="for a key of the tenant `*`: the jobs of this tenant")
]
_Task = Annotated[str, Meta(min_length=1, max_length=200)]


class BulkRetry(Struct, frozen=True, forbid_unknown_fields=True):
    """Which failed jobs to retry."""

    task: _Task
    code: Annotated[
        Annotated[str, Meta(max_length=64)] | None,
        Meta(description="only those with this error code"),
    ] = None
    message: Annotated[
        Annotated[str, Meta(max_length=1000)] | None,
        Meta(
            description="only those whose message has this first line, as `GET /v1/failures` "
            "shows it",
        ),
    ] = None
    since: Annotated[
        Annotated[Whole, Meta(ge=0)] | None,
        Meta(description="only those that failed then or later, in ms since 1970"),
    ] = None
    dry_run: _DryRun = False
    limit: _Limit = MAX_BULK
    cursor: _Cursor = None
    tenant: _Tenant = None


class BulkCancel(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs to cancel."""

    task: _Task
    status: Annotated[
        Literal["queued", "running"],
        Meta(description="`queued`: those that wait; `running`: their workers are asked to stop"),
    ] = "queued"
    since: Annotated[
        Annotated[Whole, Meta(ge=0)] | None,
        Meta(description="only those that were submitted then or later, in ms since 1970"),
    ] = None
    dry_run: _DryRun = False
    limit: _Limit = MAX_BULK
    cursor: _Cursor = None
    tenant: _Tenant = None


# ── answers ──────────────────────────────────────────────────────────────────────────────────────


class BulkAnswer(Struct, frozen=True, kw_only=True):
    """What was found, and what became of it."""

    matched: Annotated[int, Meta(description="jobs that were found")]
    changed: Annotated[
        int, Meta(description="of those, jobs that were retried, canceled or asked to stop")
    ]
    already: Annotated[
        int, Meta(description="of those, jobs that were retried before, or have ended meanwhile")
    ]
    refused: Annotated[int, Meta(description="of those, jobs that could not be changed")]
    problem: Annotated[
        Any,
        Meta(
            description="why the first of them was refused; "
            "one of status 429 or 503 if there is any",
            extra_json_schema={
                "anyOf": [{"$ref": "#/components/schemas/Problem"}, {"type": "null"}]
            },
        ),
    ] = None
    scanned: Annotated[int, Meta(description="how many jobs were scanned")]
    cursor: Annotated[
        str | None,
        Meta(
            description="where the next call goes on; null: there are no more. After a "
            "`problem` of status 429 or 503, wait first"
        ),
    ]
    dry_run: bool = False


# ── operations ───────────────────────────────────────────────────────────────────────────────────

_ANSWER: Final = {
    "matched": 120,
    "changed": 118,
    "already": 2,
    "refused": 0,
    "problem": None,
    "scanned": 4210,
    "cursor": None,
    "dry_run": False,
}
_BOUNDS: Final = (
    "One call changes at most 1000 jobs and scans at most 10000, newest first; with `cursor` the "
    "next one goes on. With `dry_run` nothing is changed."
)
RETRY_MANY: Final = Operation(
    "POST",
    f"{JOBS}/retry",
    "submit",
    "Retry failed jobs as new jobs",
    tag="jobs",
    description=f"{_BOUNDS} A failed job is retried once, however often the call is repeated.",
    body=BulkRetry,
    body_example={"task": "render", "code": "timeout", "since": 1767225600000},
    answer=BulkAnswer,
    example=_ANSWER,
    problems=(UNKNOWN_TASK, UNAVAILABLE),
    hides=True,
)
CANCEL_MANY: Final = Operation(
    "POST",
    f"{JOBS}/cancel",
    "submit",
    "Cancel jobs that wait or run",
    tag="jobs",
    description=_BOUNDS,
    body=BulkCancel,
    body_example={"task": "render", "since": 1767225600000, "dry_run": True},
    answer=BulkAnswer,
    example={**_ANSWER, "dry_run": True, "changed": 0, "already": 0},
    problems=(UNAVAILABLE,),
    hides=True,
)
