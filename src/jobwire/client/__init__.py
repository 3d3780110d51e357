"""The client of the gateway's HTTP API, for programs that submit jobs and follow them.

    from jobwire import Client, AsyncClient

    with Client() as jobs:
        answer = jobs.run("chat", {"prompt": "hello"})

    async with AsyncClient() as jobs:
        job = await jobs.submit("chat", {"prompt": "hello"})
        async for event in jobs.events(job.job_id):
            print(event.type, event.data)

Both clients share everything but the socket:

    messages      request and response bodies
    errors        the errors, by the problem's code
    calls         each API method as a plan of requests and pauses; pure
    retry_budget  what is retried, and when; pure
    event_cursor  events of a job, queue or image over any number of connections; pure
    sse           parses Server-Sent Events; pure
    images        photos: upload, follow, read; image_calls: their plans
    queues        BullMQ queues: add, follow, administer; queue_calls: their plans,
                  queue_messages: their bodies
    aio, sync     execute the plans, and open the event streams
    target        finds the gateway

It uses HTTP only; it never connects to Valkey.
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
from jobwire.client.image_calls import Image, ImageFailed, ImagePage, ImageProgress
from jobwire.client.messages import (
    Event,
    Job,
    JobLine,
    JobPage,
    JobQueueInfo,
    NewJob,
    PauseAnswer,
    PredictionInfo,
    PredictionPage,
    PurgeAnswer,
)
from jobwire.client.queue_messages import (
    AddedToQueue,
    FlowIds,
    FlowInfo,
    FlowJobInfo,
    QueueEventInfo,
    QueueJobInfo,
    QueueJobPage,
    QueueStatus,
    SchedulerInfo,
    SchedulerPage,
    SchedulerSet,
)

if TYPE_CHECKING:
    from jobwire.client.aio import AsyncClient
    from jobwire.client.images import AsyncImages, Images
    from jobwire.client.queues import AsyncQueue, Queue
    from jobwire.client.sync import Client

__all__ = [
    "AddedToQueue",
    "AlreadyFinished",
    "ApiError",
    "AsyncClient",
    "AsyncImages",
    "AsyncQueue",
    "BadAnswer",
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
    "RateLimited",
    "SchedulerInfo",
    "SchedulerPage",
    "SchedulerSet",
    "TimedOut",
    "Unauthorized",
    "Unavailable",
    "UnknownTask",
    "Unreachable",
]

# Imported on first use: a program that only catches the errors does not load httpx.
_MODULES: Final = {
    "AsyncClient": "aio",
    "AsyncImages": "images",
    "AsyncQueue": "queues",
    "Client": "sync",
    "Images": "images",
    "Queue": "queues",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
