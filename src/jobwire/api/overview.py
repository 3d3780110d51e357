"""What an operator asks of all systems at once: overview, failures, search."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from jobwire.api.fleet import Quantiles, UnavailableSystem
from jobwire.api.job_queues import JobQueueInfo
from jobwire.api.operation import Operation

MAX_HOURS: Final = 24

# ── requests ──────────────────────────────────────────────────────────────────────────────────────


class FailureFilter(Struct, frozen=True):
    """The query of failures."""

    hours: Annotated[
        int, Meta(ge=1, le=MAX_HOURS, description="the last hours, at most 24", examples=[24])
    ] = MAX_HOURS
    tenant: Annotated[
        str | None,
        Meta(
            description="for a key of the tenant `*`: the failures of this tenant",
            examples=["default"],
        ),
    ] = None


class SearchText(Struct, frozen=True):
    """The query of a search."""

    q: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=255,
            description="an id, an idempotency key, or a part of an id or a task",
            examples=["0b7c1d52"],
            extra={"fault": "must have 1 to 255 characters"},
        ),
    ]


# ── answers ───────────────────────────────────────────────────────────────────────────────────────


class SystemRow(Struct, frozen=True, kw_only=True):
    """A system, or one queue of a system, now and in the last hour."""

    system: Annotated[str, Meta(description="`jobs`, `queues`, `images` or `predictions`")]
    name: Annotated[str, Meta(description="of the queue; of the system, if it has one row")]
    wire: Annotated[str, Meta(description="the protocol, for example `streams`")]
    waiting: int
    paused: Annotated[
        bool,
        Meta(description="no worker starts what waits: its queue, or each queue of it, is paused"),
    ] = False
    delayed: Annotated[
        int,
        Meta(description="not due yet: delayed, or waiting for a retry; images: not uploaded yet"),
    ]
    suspended: Annotated[int, Meta(description="in no queue: they wait for a time or an event")] = 0
    running: int
    oldest_waiting_ms: int | None
    workers: Annotated[int | None, Meta(description="live workers; null: unknown, or none needed")]
    slots: Annotated[int | None, Meta(description="of all workers that report them; null: unknown")]
    heartbeat_age_ms: Annotated[
        int | None, Meta(description="of the worker with the latest heartbeat")
    ]
    submitted: Annotated[int | None, Meta(description="in the last hour; null: not counted")]
    done: int
    error: int
    canceled: int
    ended_by_minute: Annotated[list[int], Meta(description="oldest first; the last is incomplete")]
    failed_by_minute: list[int]
    duration_ms: Quantiles
    queues: Annotated[
        list[JobQueueInfo],
        Meta(description="of the system `jobs`: its queues, the default one first; at most 50"),
    ] = []


class FailureInfo(Struct, frozen=True, kw_only=True):
    """Failed jobs of one kind: the same task, error code and first line of the message, in which
    `…` stands for ids and long numbers."""

    system: str
    name: str
    wire: str
    task: str
    code: str
    message: str
    count: int
    first_ts: int
    last_ts: int
    by_hour: Annotated[list[int], Meta(description="oldest first; the last hour is incomplete")]
    sample_job_id: Annotated[str, Meta(description="the last job of this kind")]
    worker: Annotated[str | None, Meta(description="where all of them ran; null: several, or none")]


class FoundJob(Struct, frozen=True, kw_only=True):
    """Something that a search has found."""

    system: str
    name: str
    wire: str
    id: str
    task: str
    status: str
    created_ts: int


class Overview(Struct, frozen=True, omit_defaults=True):
    """All systems that the caller may see."""

    systems: list[SystemRow]
    unavailable: list[UnavailableSystem]
    left_out: Annotated[
        int, Meta(description="further queues, with fewer jobs than those that are shown")
    ] = 0


class Failures(Struct, frozen=True):
    """The kinds of failures, the most frequent first. Queues are read as far as `scanned`."""

    hours: int
    count: Annotated[int, Meta(description="failed jobs of all these kinds")]
    failures: list[FailureInfo]
    unavailable: list[UnavailableSystem]
    scanned: Annotated[int, Meta(description="failed jobs that were read, the newest ones")]
    total: Annotated[int, Meta(description="failed jobs of this period")]


class Search(Struct, frozen=True):
    """Exact matches first. If the text is not an id, only the newest jobs are searched."""

    found: list[FoundJob]
    scanned: int
    total: int
    unavailable: list[UnavailableSystem]


# ── operations ────────────────────────────────────────────────────────────────────────────────────

_ID: Final = "0b7c1d52-7d0e-4c55-9a0f-2f6d1c1f7a10"
OVERVIEW: Final = Operation(
    "GET",
    "/v1/overview",
    "read",
    "All systems: jobs, age of the oldest, workers, the last hour",
    tag="fleet",
    description="One row for each system, and for each of the busiest 50 queues. At most half a "
    "second old; what is read from a bucket or a database, a few seconds.",
    answer=Overview,
    example=Overview(
        [
            SystemRow(
                system="jobs",
                name="jobs",
                wire="streams",
                waiting=12,
                delayed=0,
                running=9,
                oldest_waiting_ms=400,
                workers=2,
                slots=12,
                heartbeat_age_ms=1200,
                submitted=142,
                done=119,
                error=2,
                canceled=0,
                ended_by_minute=[2, 0, 1],
                failed_by_minute=[0, 0, 1],
                duration_ms=Quantiles(120.0, 1900.0, 4100.0),
                queues=[
                    JobQueueInfo(
                        name="default",
                        paused=False,
                        waiting=12,
                        running=9,
                        oldest_waiting_ms=400,
                        workers=2,
                    )
                ],
            )
        ],
        [],
    ),
)
FAILURES: Final = Operation(
    "GET",
    "/v1/failures",
    "read",
    "Failed jobs, grouped by kind",
    tag="fleet",
    description="Failures are counted for 24 hours. A kind is a task, an error code and the first "
    "line of the message; in it `…` stands for ids and long numbers. Of queues, the newest failed "
    "jobs that are still stored are grouped; `scanned` and `total` show how far that is.",
    query=FailureFilter,
    answer=Failures,
    example=Failures(
        24,
        11,
        [
            FailureInfo(
                system="jobs",
                name="jobs",
                wire="streams",
                task="rag",
                code="timeout",
                message="no answer from the model within 30 s",
                count=11,
                first_ts=1767225600000,
                last_ts=1767229200000,
                by_hour=[0, 1, 10],
                sample_job_id=_ID,
                worker=None,
            )
        ],
        [],
        11,
        11,
    ),
)
SEARCH: Final = Operation(
    "GET",
    "/v1/search",
    "read",
    "Find by id from anywhere",
    tag="fleet",
    description="An id or an Idempotency-Key is found however old it is. Other text is searched "
    "in the ids and tasks of the newest 1000 jobs; `scanned` and `total` show how far that is.",
    query=SearchText,
    answer=Search,
    example=Search(
        [
            FoundJob(
                system="jobs",
                name="jobs",
                wire="streams",
                id=_ID,
                task="chat",
                status="done",
                created_ts=1767225600000,
            )
        ],
        1000,
        41220,
        [],
    ),
)
