"""Flows over HTTP: add a tree of jobs, read a job's tree (B-12)."""

from collections.abc import Iterator, Sequence

from jobwire.api import flows as api
from jobwire.api.queue_jobs import JOB_NOT_FOUND
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.route import Route
from jobwire.systems.queues.checks import refuse
from jobwire.systems.queues.contract import Refusal
from jobwire.systems.queues.flow_tree import TreeReader
from jobwire.systems.queues.flows import FlowJobs, FlowNode, add_flow
from jobwire.systems.queues.http import problems
from jobwire.systems.queues.http.access import QueueAccess
from jobwire.systems.queues.http.route import queue_route
from jobwire.systems.queues.http.tenant_limits import StoredJob, TenantLimits, size_of
from jobwire.systems.queues.new_jobs import flow_tree
from jobwire.systems.queues.queue import NewBullJob


class FlowRoutes:
    """The endpoints."""

    def __init__(self, access: QueueAccess, limits: TenantLimits) -> None:
        self._access = access
        self._limits = limits

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [queue_route(api.ADD, self.add), queue_route(api.GET, self.get)]

    async def add(self, request: HttpRequest, queue: str, body: api.NewFlowJob) -> api.FlowIds:
        """Add a tree of jobs in one step, all or none."""
        if body.queueName not in ("", queue):
            raise refuse(f"the flow's queueName is not that of the path, {queue!r}")
        access, settings = self._access, self._access.settings
        root = flow_tree(body, queue, settings.prefix, lambda name: access.open(request, name))
        if root.job.options.parent is not None:
            access.open(request, root.job.options.parent.queue)
        jobs = list(_jobs(root))
        with await self._limits.admit(request, queue, jobs) as reserved:
            made = await add_flow(access.connection, root, settings)
            if isinstance(made, Refusal):
                raise problems.refused(made)
            # The root is the last job of a flow to be removed.
            reserved.keep([StoredJob(queue, made.job_id, sum(map(size_of, jobs)))])
        for name in _queues(made):
            self._access.known_queues.add(name)
        return _added(made)

    async def get(
        self, request: HttpRequest, queue: str, job_id: str, query: api.TreeQuery
    ) -> api.FlowInfo:
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


def _jobs(node: FlowNode) -> Iterator[NewBullJob]:
    yield node.job
    for child in node.children:
        yield from _jobs(child)


def _queues(job: FlowJobs) -> set[str]:
    return {job.queue}.union(*map(_queues, job.children))


def _added(job: FlowJobs) -> api.FlowIds:
    return api.FlowIds(job.queue, job.job_id, [_added(child) for child in job.children])
