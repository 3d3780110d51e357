"""Checks of jobs for `jobwire doctor`: the server's clock, the queues, the models.

A queue in which jobs wait must be read by a live worker (J-53).
"""

import contextlib
from collections.abc import AsyncIterator

from jobwire.doctor import Finding, model
from jobwire.doctor.valkey import examine_queue
from jobwire.job.errors import BackendUnavailable
from jobwire.settings import Loaded
from jobwire.systems.backends import known_valkey
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.depth import depth
from jobwire.systems.jobs.queue_admin import JobQueueAdmin
from jobwire.systems.jobs.registry import WorkerRegistry
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.text import plural
from jobwire.valkey import Config, Connection, ValkeyError

_MAX_FINDINGS = 10


async def examine(loaded: Loaded) -> AsyncIterator[Finding]:
    """All checks; nothing is changed."""
    jobs = loaded.settings.jobs
    if (known := known_valkey(loaded)) is not None:
        async for finding in examine_queue(known.config, StreamsKeys(jobs.key_prefix).queue):
            yield finding
        async for finding in examine_queues(known.config, jobs):
            yield finding
    async for finding in model.examine(loaded.settings.llm):
        yield finding


async def examine_queues(config: Config, settings: StreamsSettings) -> AsyncIterator[Finding]:
    """Check each queue; nothing for an unreachable server, which another check reports."""
    findings: list[Finding] = []
    with contextlib.suppress(ValkeyError, BackendUnavailable):
        async with Connection.open(config, name="jobwire-doctor") as connection:
            findings = await _findings(connection, settings)
    for finding in findings[:_MAX_FINDINGS]:
        yield finding


async def _findings(connection: Connection, settings: StreamsSettings) -> list[Finding]:
    registry = WorkerRegistry(connection, settings)
    now = await depth(connection, StreamsKeys(settings.key_prefix), await registry.queue_names())
    paused = await JobQueueAdmin(connection, settings).paused()
    workers = await registry.workers()
    # Which queues a foreign worker reads is not known.
    foreign = any(not worker.ours for worker in workers)
    found: list[Finding] = []
    for queue in now.queues:
        if queue.name in paused:
            why = f"{plural(queue.waiting, 'job')} waiting until it is resumed"
            fix = f"jobwire queue resume {queue.name} --wire streams"
            found.append(Finding(f"queue {queue.name}", "note", "it is paused", why, fix))
        elif queue.waiting and not foreign and not any(queue.name in w.queues for w in workers):
            what = f"{plural(queue.waiting, 'job')} waiting, and no live worker reads it"
            fix = "start a worker of its App; for `default`, also set worker.default_queue"
            why = "nothing starts until a worker does"
            found.append(Finding(f"queue {queue.name}", "note", what, why, fix))
    for task, queues in (await registry.task_queues()).items():
        if len(queues) > 1:
            what = f"live in {len(queues)} queues: {', '.join(queues)}"
            why = f"new jobs wait in {queues[0]}, the queue of the worker that was started last"
            fix = "give the App one name, or the handler one queue=, in every worker"
            found.append(Finding(f"task {task}", "note", what, why, fix))
    return found or [
        Finding("job queues", "ok", f"{len(now.queues)}, all queues with jobs have a worker")
    ]
