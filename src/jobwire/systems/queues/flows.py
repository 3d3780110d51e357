"""Flows: a tree of jobs in which a parent waits for its children, made in one step (B-8).

    clips = [FlowNode("clips", NewJob("cut")), FlowNode("clips", NewJob("cut"))]
    await add_flow(connection, FlowNode("videos", NewJob("join"), clips))

The nodes may be of several queues of one server; on a cluster their names share a hash tag.
"""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, cast
from uuid import uuid4

from jobwire.systems.queues import contract
from jobwire.systems.queues.checks import BULK_TOO_LARGE, refuse
from jobwire.systems.queues.clock import NowMs, system_now_ms
from jobwire.systems.queues.contract import Keys, Refusal
from jobwire.systems.queues.options import Parent, ParentPolicy, write_options, write_parent
from jobwire.systems.queues.queue import NewBullJob, QueueProducer, check_bulk_bytes
from jobwire.systems.queues.scripts import script
from jobwire.systems.queues.settings import BullSettings
from jobwire.valkey import Arg, Connection, Reply

MAX_DEPTH: Final = 50


@dataclass(frozen=True, slots=True)
class FlowNode:
    """A job and the jobs that it waits for; `policy` is the effect of its failure on its parent."""

    queue: str
    job: NewBullJob
    children: Sequence["FlowNode"] = ()
    policy: ParentPolicy = ""


@dataclass(frozen=True, slots=True)
class FlowJobs:
    """The ids of a flow, as a tree of the same form."""

    queue: str
    job_id: str
    children: list["FlowJobs"] = field(default_factory=list["FlowJobs"])


def add_flow(
    connection: Connection,
    root: FlowNode,
    settings: BullSettings | None = None,
    *,
    now_ms: NowMs = system_now_ms,
) -> Awaitable[FlowJobs | Refusal]:
    """Make all jobs or none. A job whose custom id exists is attached to its new parent. Sent when
    called; RefusedError where the wire does not take a job."""
    chosen = settings or BullSettings()
    nodes, tree = _level_order(root, chosen.prefix)
    metas = list(dict.fromkeys(node.keys.meta for node in nodes))
    check_bulk_bytes(node.job.data_json for node in nodes)
    asked_ms = now_ms()
    args: list[Arg] = [asked_ms, int(chosen.extras)]
    for node in nodes:
        QueueProducer(connection, node.keys.queue, chosen).check(node.job)
        args += _node_args(node, metas.index(node.keys.meta) + 1, asked_ms, chosen.prefix)
    return _made(connection.run(script("flow"), metas, args), tree)


async def _made(answer: Awaitable[Reply], tree: FlowJobs) -> FlowJobs | Refusal:
    reply = await answer
    match cast("list[str]", reply):
        case ["ok", root_id, *_]:
            # The root is another job where its deduplication id is owned.
            return replace(tree, job_id=root_id)
        case [word, *_]:
            return Refusal(word)
        case _:
            raise TypeError(f"the script answered {reply!r}")


@dataclass(frozen=True, slots=True)
class _Node:
    keys: Keys
    job_id: str
    job: NewBullJob
    waits: bool


def _level_order(root: FlowNode, prefix: str) -> tuple[list[_Node], FlowJobs]:
    """Parents before their children, level by level, as the official package adds them."""
    made: list[_Node] = []
    tree: FlowJobs | None = None
    level: list[tuple[FlowNode, FlowJobs | None]] = [(root, None)]
    for _ in range(MAX_DEPTH):
        below: list[tuple[FlowNode, FlowJobs | None]] = []
        for node, above in level:
            _check_node(node)
            options = node.job.options
            job_id = options.job_id or str(uuid4())
            parent = Parent(above.queue, above.job_id, node.policy) if above else options.parent
            job = node.job._replace(options=replace(options, parent=parent))
            here = FlowJobs(node.queue, job_id)
            made.append(_Node(Keys(node.queue, prefix), job_id, job, bool(node.children)))
            if above is None:
                tree = here
            else:
                above.children.append(here)
            below += [(child, here) for child in node.children]
            if len(made) + len(below) > contract.MAX_FLOW_JOBS:
                raise refuse(f"a flow may have {contract.MAX_FLOW_JOBS} jobs", BULK_TOO_LARGE)
        if not below:
            assert tree is not None
            return made, tree
        level = below
    raise refuse(f"a flow may have {MAX_DEPTH} levels", BULK_TOO_LARGE)


def _check_node(node: FlowNode) -> None:
    if node.job.options.deduplication is not None and node.children:
        raise refuse("a job that waits for children cannot be deduplicated")


def _node_args(node: _Node, queue_number: int, asked_ms: int, prefix: str) -> list[Arg]:
    options, parent = node.job.options, node.job.options.parent
    rule = options.deduplication
    return [
        queue_number,
        node.job_id,
        node.job.name,
        node.job.data_json,
        write_options(options, prefix),
        asked_ms if options.timestamp_ms is None else options.timestamp_ms,
        options.delay_ms,
        options.priority,
        int(options.lifo),
        Keys(parent.queue, prefix).job(parent.id) if parent else "",
        write_parent(parent, prefix) if parent else "",
        int(node.waits),
        rule.id if rule else "",
        rule.ttl_ms if rule else 0,
        rule.flags if rule else "",
    ]
