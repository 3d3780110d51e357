"""Background jobs with live progress.

A job is submitted once, leased to one worker at a time, reports while it runs, and is settled once.
A wire is a documented protocol that other programs use, too.

    job/       the domain model: states, outcomes, the Engine protocol. Pure
    systems/   one folder per system: its wire, its HTTP, its assembly
    api/       every HTTP operation, as data
    programs/  what builds the gateway, the worker and `up` from all systems
    handlers/  the built-in handlers
    worker/    leases jobs and runs handlers
    gateway/   the HTTP server
    valkey/    the toolkit: connection, producer, consumer; usable alone
    objects/   the bucket
    local/     the servers that `jobwire up` starts
    cli/       one file per command
    client/    for programs that submit and follow jobs
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from jobwire.client.aio import AsyncClient
    from jobwire.client.errors import ClientError
    from jobwire.client.messages import NewJob
    from jobwire.client.sync import Client
    from jobwire.job.errors import (
        ChildFailed,
        Fail,
        JobSuspended,
        Postpone,
        RateLimit,
        Retry,
        SignalTimeout,
        StepFailed,
        StepInterrupted,
        WaitForChildren,
    )
    from jobwire.systems.queues.direct_queue import BullQueue
    from jobwire.systems.queues.direct_queue_sync import SyncBullQueue
    from jobwire.task import Task
    from jobwire.worker.app import App
    from jobwire.worker.context import Context, SyncContext
    from jobwire.worker.failed_job import FailedJob

__all__ = [
    "App",
    "AsyncClient",
    "BullQueue",
    "ChildFailed",
    "Client",
    "ClientError",
    "Context",
    "Fail",
    "FailedJob",
    "JobSuspended",
    "NewJob",
    "Postpone",
    "RateLimit",
    "Retry",
    "SignalTimeout",
    "StepFailed",
    "StepInterrupted",
    "SyncBullQueue",
    "SyncContext",
    "Task",
    "WaitForChildren",
    "__version__",
]
__version__ = "0.1.0"

# Loaded on first use: `jobwire --help` and the toolkit need none of it.
_MODULES: Final = {
    "App": "jobwire.worker.app",
    "AsyncClient": "jobwire.client.aio",
    "BullQueue": "jobwire.systems.queues.direct_queue",
    "ChildFailed": "jobwire.job.errors",
    "Client": "jobwire.client.sync",
    "ClientError": "jobwire.client.errors",
    "Context": "jobwire.worker.context",
    "Fail": "jobwire.job.errors",
    "FailedJob": "jobwire.worker.failed_job",
    "JobSuspended": "jobwire.job.errors",
    "NewJob": "jobwire.client.messages",
    "Postpone": "jobwire.job.errors",
    "RateLimit": "jobwire.job.errors",
    "Retry": "jobwire.job.errors",
    "SignalTimeout": "jobwire.job.errors",
    "StepFailed": "jobwire.job.errors",
    "StepInterrupted": "jobwire.job.errors",
    "SyncBullQueue": "jobwire.systems.queues.direct_queue_sync",
    "SyncContext": "jobwire.worker.context",
    "Task": "jobwire.task",
    "WaitForChildren": "jobwire.job.errors",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
