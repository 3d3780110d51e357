"""Flows over HTTP: add a tree of jobs, read a job's tree (B-12)."""

from collections.abc import Sequence
from typing import Final

from jobwire.api import flows as api
from jobwire.api.queue_jobs import JOB_NOT_FOUND
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.route import Route
from jobwire.job.errors import RefusedError
from jobwire.systems.queues.checks import BULK_TOO_LARGE, refuse
from jobwire.systems.queues.contract import MAX_FLOW_JOBS, Refusal
from jobwire.systems.queues.flows import MAX_DEPTH, FlowJobs, FlowNode, add_flow
from jobwire.systems.queues.http import bodies, problems
from jobwire.systems.queues.http.access import QueueAccess
from jobwire.systems.queues.http.flow_tree import TreeReader
from jobwire.systems.queues.http.route import queue_route
from jobwire.systems.queues.options import ParentPolicy


class FlowRoutes:
    """The endpoints."""

    def __init__(self, access: QueueAccess) -> None:
        self._access = access

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [queue_route(api.ADD, self.add), queue_route(api.GET, self.get)]

    async def add(self, request: HttpRequest, queue: str, body: api.NewFlowJob) -> api.AddedFlowJob:
        """Add a tree of jobs in one step, all or none."""
        _check_size(body)
        if body.queueName not in ("", queue):
            raise refuse(f"the flow's queueName is not that of the path, {queue!r}")
        if policy := _policy(body.opts):
            raise refuse(f"the root of a flow has no parent: remove {_POLICIES[policy]}")
        root = _node(self._access, request, body, queue, "flow")
        made = await add_flow(self._access.connection, root, self._access.settings)
        if isinstance(made, Refusal):
            raise problems.refused(made)
        for name in _queues(made):
            self._access.known_queues.add(name)
        return _added(made)

    async def get(
        self, request: HttpRequest, queue: str, job_id: str, query: api.TreeQuery
    ) -> api.FlowTree:
        """A job with its parent and the tree of its children."""
        access = self._access
        await access.existing(request, queue)
        reader = TreeReader(
            access.connection, access.settings, lambda name: access.is_visible(request, name)
        )
        tree = await reader.read(queue, job_id, depth=query.depth, width=query.width)
        if tree is None:
            raise Problem(JOB_NOT_FOUND)
        return tree


def _check_size(flow: api.NewFlowJob) -> None:
    """Refuse a flow that is too large before each of its jobs is checked. Not recursive: a body may
    have more levels than the stack."""
    level = [flow]
    total = 0
    for _ in range(MAX_DEPTH):
        total += len(level)
        if total > MAX_FLOW_JOBS:
            raise refuse(f"a flow may have {MAX_FLOW_JOBS} jobs", BULK_TOO_LARGE)
        level = [child for job in level for child in job.children]
        if not level:
            return
    raise refuse(f"a flow may have {MAX_DEPTH} levels", BULK_TOO_LARGE)


_POLICIES: Final[dict[ParentPolicy, str]] = {
    "fail": "failParentOnFailure",
    "continue": "continueParentOnFailure",
    "ignore": "ignoreDependencyOnFailure",
    "remove": "removeDependencyOnFailure",
}


def _policy(opts: api.FlowJobOptions) -> ParentPolicy:
    chosen: list[ParentPolicy] = [
        policy for policy, name in _POLICIES.items() if getattr(opts, name)
    ]
    if len(chosen) > 1:
        names = " and ".join(_POLICIES[policy] for policy in chosen)
        raise refuse(f"{names} exclude each other; choose one")
    return chosen[0] if chosen else ""


def _node(
    access: QueueAccess, request: HttpRequest, given: api.NewFlowJob, queue: str, where: str
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


def _added(job: FlowJobs) -> api.AddedFlowJob:
    return api.AddedFlowJob(job.queue, job.job_id, [_added(child) for child in job.children])
