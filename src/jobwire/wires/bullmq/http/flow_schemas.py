"""Request and response bodies of flows, as types. Options have the names of npm BullMQ."""

from typing import Any, Final

from pydantic import BaseModel, Field, StrictBool

from jobwire.wires.bullmq.contract import MAX_FLOW_JOBS
from jobwire.wires.bullmq.http.schemas import NewJobOptions, example

_CHILD: Final[dict[str, Any]] = {
    "name": "cut",
    "queueName": "clips",
    "data": {"scene": 1},
    "opts": {"failParentOnFailure": True},
}
_FLOW: Final[dict[str, Any]] = {"name": "join", "data": {}, "children": [_CHILD]}
_ADDED_CHILD: Final[dict[str, Any]] = {"queue": "clips", "id": "1f0c", "children": []}
_COUNTS: Final = {"completed": 1, "failed": 0, "ignored": 0, "pending": 2}
_TREE_JOB: Final[dict[str, Any]] = {
    "queue": "videos",
    "id": "17",
    "name": "join",
    "state": "waiting-children",
    "removed": False,
    "progress": 0,
    "failed_reason": None,
    "counts": _COUNTS,
    "children": [],
}


class FlowJobOptions(NewJobOptions):
    """How a job of a flow is run, and the effect of its failure on its parent: at most one of the
    four, without any the parent keeps waiting."""

    model_config = example({"attempts": 3, "failParentOnFailure": True}, extra="forbid")
    failParentOnFailure: StrictBool = False  # noqa: N815 - the wire's name
    continueParentOnFailure: StrictBool = False  # noqa: N815
    ignoreDependencyOnFailure: StrictBool = False  # noqa: N815
    removeDependencyOnFailure: StrictBool = False  # noqa: N815


class NewFlowJob(BaseModel):
    """A job and the jobs that it waits for."""

    model_config = example(_FLOW, extra="forbid")
    name: str
    queueName: str = Field(  # noqa: N815 - the wire's name
        default="", description="that of its parent without it; of the root that of the path"
    )
    data: Any = Field(default_factory=dict, description="any JSON")
    opts: FlowJobOptions = FlowJobOptions()
    children: list["NewFlowJob"] = Field(
        default=[], description=f"a flow has at most {MAX_FLOW_JOBS} jobs"
    )


class AddedFlowJob(BaseModel):
    """The ids of a flow, as a tree of the same form."""

    model_config = example({"queue": "videos", "id": "9b2a", "children": [_ADDED_CHILD]})
    queue: str
    id: str
    children: list["AddedFlowJob"]


class ChildCounts(BaseModel):
    """Children by what became of them; `ignored` ones failed without an effect on the parent."""

    model_config = example(_COUNTS)
    completed: int
    failed: int
    ignored: int
    pending: int


class FlowTreeJob(BaseModel):
    """A job of a tree. `children` are those that are shown, `counts` has all of them."""

    model_config = example(_TREE_JOB)
    queue: str
    id: str
    name: str
    state: str
    removed: bool = Field(description="the job is deleted; the state is what its parent recorded")
    progress: Any
    failed_reason: str | None
    counts: ChildCounts
    children: list["FlowTreeJob"]


class FlowTree(BaseModel):
    """A job with the jobs below it and the one above it."""

    model_config = example({"job": _TREE_JOB, "parent": None})
    job: FlowTreeJob
    parent: FlowTreeJob | None = Field(
        description="without its children; null: there is none that the caller may see"
    )
