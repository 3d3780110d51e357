"""The operations of flows: trees of jobs of BullMQ's queues, each waiting for its children."""

from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from jobwire.api.operation import Operation
from jobwire.api.queue_jobs import JOB, MAX_BODY, ON_ADDING, ON_JOBS, AnyJson, NewJobOptions
from jobwire.api.queues import QUEUE

MAX_FLOW_JOBS: Final = 1_000
DEFAULT_DEPTH: Final = 10
DEFAULT_WIDTH: Final = 20
MAX_DEPTH: Final = 50
MAX_WIDTH: Final = 200
MAX_TREE_JOBS: Final = 200
"""How many jobs a tree shows in all: the state of a waiting job costs a search of its queue."""

# ── requests ─────────────────────────────────────────────────────────────────────────────────────


class NewFlowJob(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A job and the jobs that it waits for."""

    name: str
    queueName: Annotated[  # noqa: N815 - the wire's name
        str, Meta(description="that of its parent without it; of the root that of the path")
    ] = ""
    data: AnyJson = {}
    opts: NewJobOptions = NewJobOptions()
    children: Annotated[
        tuple["NewFlowJob", ...], Meta(description=f"a flow has at most {MAX_FLOW_JOBS} jobs")
    ] = ()


class TreeQuery(Struct, frozen=True):
    """How much of a tree is shown."""

    depth: Annotated[
        int, Meta(ge=1, le=MAX_DEPTH, description="levels below the job that are shown")
    ] = DEFAULT_DEPTH
    width: Annotated[
        int, Meta(ge=1, le=MAX_WIDTH, description="children of a job that are shown")
    ] = DEFAULT_WIDTH


# ── answers ──────────────────────────────────────────────────────────────────────────────────────


class FlowIds(Struct, frozen=True):
    """The ids of a flow, as a tree of the same form."""

    queue: str
    id: str
    children: list["FlowIds"]


class ChildCounts(Struct, frozen=True):
    """Children by what became of them; `ignored` ones failed without an effect on the parent."""

    completed: int
    failed: int
    ignored: int
    pending: int


class FlowJobInfo(Struct, frozen=True, kw_only=True):
    """A job of a tree. `children` are those that are shown, `counts` has all of them."""

    queue: str
    id: str
    name: str
    state: str
    removed: Annotated[
        bool, Meta(description="the job is deleted; the state is what its parent recorded")
    ]
    progress: Any
    failed_reason: str | None
    counts: ChildCounts
    children: list["FlowJobInfo"]


class FlowInfo(Struct, frozen=True):
    """A job with the jobs below it and the one above it."""

    job: FlowJobInfo
    parent: Annotated[
        FlowJobInfo | None,
        Meta(description="without its children; null: there is none that the caller may see"),
    ]


# ── operations ───────────────────────────────────────────────────────────────────────────────────

_CHILD: Final[dict[str, Any]] = {
    "name": "cut",
    "queueName": "clips",
    "data": {"scene": 1},
    "opts": {"failParentOnFailure": True},
}
_ADDED_CHILD: Final[dict[str, Any]] = {"queue": "clips", "id": "1f0c", "children": []}

ADD: Final = Operation(
    "POST",
    QUEUE + "/flows",
    "submit",
    "Add a tree of jobs in one step, all or none: each waits for its children",
    tag="queues",
    description="They may be in several queues; queues that do not exist are made.",
    body=NewFlowJob,
    body_example={"name": "join", "data": {}, "children": [_CHILD]},
    max_body=MAX_BODY,
    answer=FlowIds,
    example={"queue": "videos", "id": "9b2a", "children": [_ADDED_CHILD]},
    status=201,
    problems=ON_ADDING,
)
GET: Final = Operation(
    "GET",
    JOB + "/flow",
    "read",
    "A job with its parent and the tree of its children, failed ones first",
    tag="queues",
    description=f"At most {MAX_TREE_JOBS} jobs are shown; `counts` of each has all its children.",
    query=TreeQuery,
    answer=FlowInfo,
    example={
        "job": {
            "queue": "videos",
            "id": "17",
            "name": "join",
            "state": "waiting-children",
            "removed": False,
            "progress": 0,
            "failed_reason": None,
            "counts": {"completed": 1, "failed": 0, "ignored": 0, "pending": 2},
            "children": [],
        },
        "parent": None,
    },
    problems=ON_JOBS,
)
