"""For programs that submit jobs and watch them: a client of the gateway's HTTP API.

    from jobwire import Client, AsyncClient

    with Client() as jobs:
        answer = jobs.run("chat", {"prompt": "hello"})

    async with AsyncClient() as jobs:
        job = await jobs.submit("chat", {"prompt": "hello"})
        async for event in jobs.events(job.job_id):
            print(event.type, event.data)

Both sides share everything but the socket:

    messages   what goes out and comes in
    errors     what can go wrong, by the problem's code
    calls      one method of the API each, as a plan of requests and pauses; pure
    patience   what is asked again, and when; pure
    following  one job's events over any number of connections; pure
    sse        bytes to events; pure
    aio, sync  carry the plans out
    place      finds the program to talk to

It speaks HTTP only, and knows nothing of keys, streams or Valkey.
"""

import importlib
from typing import TYPE_CHECKING, Final

from jobwire.client.errors import (
    AlreadyFinished,
    ApiError,
    BadAnswer,
    ClientError,
    Forbidden,
    IdempotencyMismatch,
    Invalid,
    JobCanceled,
    JobFailed,
    NoSuchJob,
    NotFound,
    QueueFull,
    RateLimited,
    TimedOut,
    Unauthorized,
    Unavailable,
    UnknownTask,
    Unreachable,
)
from jobwire.client.messages import Event, Job, JobLine, JobPage, NewJob

if TYPE_CHECKING:
    from jobwire.client.aio import AsyncClient
    from jobwire.client.sync import Client

__all__ = [
    "AlreadyFinished",
    "ApiError",
    "AsyncClient",
    "BadAnswer",
    "Client",
    "ClientError",
    "Event",
    "Forbidden",
    "IdempotencyMismatch",
    "Invalid",
    "Job",
    "JobCanceled",
    "JobFailed",
    "JobLine",
    "JobPage",
    "NewJob",
    "NoSuchJob",
    "NotFound",
    "QueueFull",
    "RateLimited",
    "TimedOut",
    "Unauthorized",
    "Unavailable",
    "UnknownTask",
    "Unreachable",
]

# Loaded when asked for: whoever only catches our errors needs no HTTP library.
_HOMES: Final = {"AsyncClient": "aio", "Client": "sync"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
