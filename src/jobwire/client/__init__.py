"""The client of the gateway's HTTP API, for programs that submit jobs and follow them.

    from jobwire import Client, AsyncClient

    with Client() as jobs:
        answer = jobs.run("chat", {"prompt": "hello"})

    async with AsyncClient() as jobs:
        job = await jobs.submit("chat", {"prompt": "hello"})
        async for event in jobs.events(job.job_id):
            print(event.type, event.data)

Both clients share everything but the socket:

    messages      requests, events, and the answers, whose types are those of `jobwire.api`
    errors        the errors, by the problem's code
    calls         an operation, and each method that is more than one call, as a plan of requests
                  and pauses; pure
    retry_budget  what is retried, and when; pure
    event_cursor  events of a job, queue or image over any number of connections; pure
    sse           parses Server-Sent Events; pure
    image_calls   the plans of photos; image_files reads them
    queue_calls   the plans of BullMQ queues
    aio           executes the plans, and opens the event streams; aio_images and aio_queues are
                  `client.images` and `client.queue(…)`
    sync          written from the async modules by `make sync-client`, as are sync_images and
                  sync_queues
    target        finds the gateway

It uses HTTP only; it never connects to Valkey.
"""

import importlib
from typing import TYPE_CHECKING, Final

from jobwire.client.errors import (
    AlreadyFinished,
    AlreadySignaled,
    ApiError,
    BadAnswer,
    ClientError,
    Forbidden,
    IdempotencyMismatch,
    Invalid,
    JobCanceled,
    JobFailed,
    NoSuchImage,
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
from jobwire.client.image_calls import ImageFailed
from jobwire.client.messages import (
    AddedToQueue,
    BulkAnswer,
    Event,
    FlowIds,
    FlowInfo,
    FlowJobInfo,
    Image,
    ImagePage,
    ImageProgress,
    Job,
    JobLine,
    JobPage,
    JobQueueInfo,
    NewJob,
    PauseAnswer,
    PredictionInfo,
    PredictionPage,
    PurgeAnswer,
    QueueEventInfo,
    QueueJobInfo,
    QueueJobPage,
    QueueStatus,
    QueueSummary,
    SchedulerInfo,
    SchedulerPage,
    SchedulerSet,
    SignalAnswer,
    StepAnswer,
    StepInfo,
)

if TYPE_CHECKING:
    from jobwire.client.aio import AsyncClient
    from jobwire.client.aio_images import AsyncImages
    from jobwire.client.aio_queues import AsyncQueue
    from jobwire.client.sync import Client
    from jobwire.client.sync_images import Images
    from jobwire.client.sync_queues import Queue

__all__ = [
    "AddedToQueue",
    "AlreadyFinished",
    "AlreadySignaled",
    "ApiError",
    "AsyncClient",
    "AsyncImages",
    "AsyncQueue",
    "BadAnswer",
    "BulkAnswer",
    "Client",
    "ClientError",
    "Event",
    "FlowIds",
    "FlowInfo",
    "FlowJobInfo",
    "Forbidden",
    "IdempotencyMismatch",
    "Image",
    "ImageFailed",
    "ImagePage",
    "ImageProgress",
    "Images",
    "Invalid",
    "Job",
    "JobCanceled",
    "JobFailed",
    "JobLine",
    "JobPage",
    "JobQueueInfo",
    "NewJob",
    "NoSuchImage",
    "NoSuchJob",
    "NotFound",
    "PauseAnswer",
    "PredictionInfo",
    "PredictionPage",
    "PurgeAnswer",
    "Queue",
    "QueueEventInfo",
    "QueueFull",
    "QueueJobInfo",
    "QueueJobPage",
    "QueueStatus",
    "QueueSummary",
    "RateLimited",
    "SchedulerInfo",
    "SchedulerPage",
    "SchedulerSet",
    "SignalAnswer",
    "StepAnswer",
    "StepInfo",
    "TimedOut",
    "Unauthorized",
    "Unavailable",
    "UnknownTask",
    "Unreachable",
]

# Imported on first use: a program that only catches the errors does not load httpx.
_MODULES: Final = {
    "AsyncClient": "aio",
    "AsyncImages": "aio_images",
    "AsyncQueue": "aio_queues",
    "Client": "sync",
    "Images": "sync_images",
    "Queue": "sync_queues",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
