"""Flows over HTTP: add a tree of jobs, read a job's tree (B-12)."""

from typing import Annotated, Final

from fastapi import APIRouter, Query
from pydantic import BeforeValidator

from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.router import CurrentRequest, needs
from jobwire.job.errors import RefusedError
from jobwire.job.messages import Json
from jobwire.wires.bullmq.checks import BULK_TOO_LARGE, refuse
from jobwire.wires.bullmq.contract import MAX_FLOW_JOBS, Refusal
from jobwire.wires.bullmq.flows import MAX_DEPTH, FlowJobs, FlowNode, add_flow
from jobwire.wires.bullmq.http import bodies, flow_tree, problems
from jobwire.wires.bullmq.http.access import QueueAccess
from jobwire.wires.bullmq.http.failures import wire_router
from jobwire.wires.bullmq.http.flow_schemas import (
    AddedFlowJob,
    FlowJobOptions,
    FlowTree,
    NewFlowJob,
)
from jobwire.wires.bullmq.http.flow_tree import TreeReader
from jobwire.wires.bullmq.http.jobs import JOB, MAX_BODY
from jobwire.wires.bullmq.http.queues import PATH
from jobwire.wires.bullmq.options import ParentPolicy

_Depth = Annotated[
    int, Query(ge=1, le=flow_tree.MAX_DEPTH, description="levels below the job that are shown")
]
_Width = Annotated[
    int, Query(ge=1, le=flow_tree.MAX_WIDTH, description="children of a job that are shown")
]


def _check_size(flow: Json) -> Json:
    """Refuse a flow that is too large before each of its jobs is read."""
    level: list[Json] = [flow]
    total = 0
    for _ in range(MAX_DEPTH):
        total += len(level)
        if total > MAX_FLOW_JOBS:
            raise refuse(f"a flow may have {MAX_FLOW_JOBS} jobs", BULK_TOO_LARGE)
        level = [child for job in level for child in _children(job)]
        if not level:
            return flow
    raise refuse(f"a flow may have {MAX_DEPTH} levels", BULK_TOO_LARGE)


def _children(job: Json) -> list[Json]:
    found = job.get("children") if isinstance(job, dict) else None
    return found if isinstance(found, list) else []


_Flow = Annotated[NewFlowJob, BeforeValidator(_check_size)]


def flow_router(access: QueueAccess) -> APIRouter:
    """The routes."""
    routes = wire_router()

    @routes.post(
        PATH + "/{queue}/flows",
        status_code=201,
        openapi_extra=needs("submit", *problems.ON_ADDING, max_body=MAX_BODY),
    )
    async def add_a_flow(queue: str, flow: _Flow, request: CurrentRequest) -> AddedFlowJob:
        """Add a tree of jobs in one step, all or none: each waits for its children. They may be in
        several queues; queues that do not exist are made."""
        if flow.queueName not in ("", queue):
            raise refuse(f"the flow's queueName is not that of the path, {queue!r}")
        if policy := _policy(flow.opts):
            raise refuse(f"the root of a flow has no parent: remove {_POLICIES[policy]}")
        root = _node(access, request, flow, queue, "flow")
        made = await add_flow(access.connection, root, access.settings)
        if isinstance(made, Refusal):
            raise problems.refused(made)
        for name in _queues(made):
            access.directory.add(name)
        return _added(made)

    @routes.get(JOB + "/flow", openapi_extra=needs("read", *problems.ON_JOBS))
    async def read_a_flow(
        queue: str,
        job_id: str,
        request: CurrentRequest,
        depth: _Depth = flow_tree.DEFAULT_DEPTH,
        width: _Width = flow_tree.DEFAULT_WIDTH,
    ) -> FlowTree:
        """A job with its parent and the tree of its children, failed ones first. At most 200 jobs
        are shown; `counts` of each has all its children."""
        await access.existing(request, queue)
        reader = TreeReader(
            access.connection, access.settings, lambda name: access.is_visible(request, name)
        )
        tree = await reader.read(queue, job_id, depth=depth, width=width)
        if tree is None:
            raise Problem(problems.JOB_NOT_FOUND)
        return tree

    return routes


_POLICIES: Final[dict[ParentPolicy, str]] = {
    "fail": "failParentOnFailure",
    "continue": "continueParentOnFailure",
    "ignore": "ignoreDependencyOnFailure",
    "remove": "removeDependencyOnFailure",
}


def _policy(opts: FlowJobOptions) -> ParentPolicy:
    chosen: list[ParentPolicy] = [
        policy for policy, name in _POLICIES.items() if getattr(opts, name)
    ]
    if len(chosen) > 1:
        names = " and ".join(_POLICIES[policy] for policy in chosen)
        raise refuse(f"{names} exclude each other; choose one")
    return chosen[0] if chosen else ""


def _node(
    access: QueueAccess, request: HttpRequest, given: NewFlowJob, queue: str, where: str
) -> FlowNode:
    """A job of a flow, checked: its queue must be the caller's, and must take the job."""
    opened = access.open(request, queue)
    try:
        job = bodies.new_job(given.name, given.data, given.opts)
        opened.check(job)
        policy = _policy(given.opts)
    except RefusedError as error:
        raise refuse(f"{where}: {error.message}", error.code) from None
    children = [
        _node(access, request, child, child.queueName or queue, f"{where}.children[{number}]")
        for number, child in enumerate(given.children)
    ]
    return FlowNode(queue, job, children, policy)


def _queues(job: FlowJobs) -> set[str]:
    return {job.queue}.union(*map(_queues, job.children))


def _added(job: FlowJobs) -> AddedFlowJob:
    return AddedFlowJob(
        queue=job.queue, id=job.job_id, children=[_added(child) for child in job.children]
    )
