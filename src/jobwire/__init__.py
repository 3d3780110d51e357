"""Background jobs with live progress.

A job is submitted once, held by one worker at a time, reports while it runs, and is settled
once. A wire is a way of saying that to someone else's program.

    job/       the heart: states, outcomes, the seam. Pure
    wires/     one folder a contract
    handlers/  the work itself
    worker/    holds jobs and runs handlers
    gateway/   the HTTP shell
    valkey/    the toolkit: connection, producer, consumer; usable alone
    objects/   the bucket
    local/     the real servers that `jobwire up` brings along
    cli/       a file a command
    client/    for programs that submit jobs and watch them
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from jobwire.client.aio import AsyncClient
    from jobwire.client.messages import NewJob
    from jobwire.client.sync import Client
    from jobwire.job.errors import Fail, Retry
    from jobwire.worker.app import App
    from jobwire.worker.context import Context

__all__ = [
    "App",
    "AsyncClient",
    "Client",
    "Context",
    "Fail",
    "NewJob",
    "Retry",
    "__version__",
]
__version__ = "0.1.0"

# Loaded when asked for: `jobwire --help` and the toolkit need none of it.
_HOMES: Final = {
    "App": "jobwire.worker.app",
    "AsyncClient": "jobwire.client.aio",
    "Client": "jobwire.client.sync",
    "Context": "jobwire.worker.context",
    "Fail": "jobwire.job.errors",
    "NewJob": "jobwire.client.messages",
    "Retry": "jobwire.job.errors",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
