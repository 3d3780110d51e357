"""What is sent and received. Answers are the types of `jobwire.api`, under the same names here.

Tolerant: unknown members of a newer gateway are ignored.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypedDict

from msgspec import Struct

from jobwire.api.bulk import BulkAnswer
from jobwire.api.flows import FlowIds, FlowInfo, FlowJobInfo
from jobwire.api.images import Image, ImagePage, StatusEvent
from jobwire.api.job_queues import JobQueueInfo, PauseAnswer, PurgeAnswer
from jobwire.api.jobs import (
    ENDED,
    STATE_EVENTS,
    CancelAnswer,
    Failure,
    Job,
    JobLine,
    JobPage,
    SignalAnswer,
    StepAnswer,
    StepInfo,
)
from jobwire.api.predictions import PredictionInfo, PredictionPage
from jobwire.api.queue_jobs import AddedToQueue, QueueJobInfo, QueueJobPage
from jobwire.api.queues import QueueEventData, QueueStatus, QueueSummary
from jobwire.api.schedulers import SchedulerInfo, SchedulerPage, SchedulerSet

if TYPE_CHECKING:
    from jobwire.job.messages import Json
else:
    Json = Any  # msgspec reads types at run time, and does not support recursive aliases

__all__ = [
    "AddedToQueue",
    "BulkAnswer",
    "CancelAnswer",
    "Event",
    "Failure",
    "FlowIds",
    "FlowInfo",
    "FlowJobInfo",
    "Image",
    "ImagePage",
    "ImageProgress",
    "Job",
    "JobLine",
    "JobOptions",
    "JobPage",
    "JobQueueInfo",
    "NewJob",
    "PauseAnswer",
    "PredictionInfo",
    "PredictionPage",
    "PurgeAnswer",
    "QueueEventInfo",
    "QueueJobInfo",
    "QueueJobPage",
    "QueueStatus",
    "QueueSummary",
    "SchedulerInfo",
    "SchedulerPage",
    "SchedulerSet",
    "SignalAnswer",
    "StepAnswer",
    "StepInfo",
]

_LAST_EVENTS: Final = frozenset({"completed", "failed", "removed"})


class JobOptions(TypedDict, total=False):
    """Options of a new job."""

    ttl_s: int
    """How long the job is kept after its last change."""
    delay_s: float
    """Start it after this delay."""
    max_attempts: int
    timeout_s: float
    """How long one attempt may take."""
    deadline_s: float
    """How long the whole job may take, with its waits."""
    idempotency_key: str
    """One key creates one job, however often it is sent. Default: a random one."""
    queue: str
    """The queue that the job waits in. Default: the queue of its task."""


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to create. Options that are None have the default of the gateway or the handler."""

    task: str
    payload: object = None
    """A mapping, or a dataclass or msgspec Struct that becomes one; None is `{}`. A `msgspec.Raw`
    is sent byte for byte."""
    ttl_s: int | None = None
    delay_s: float | None = None
    max_attempts: int | None = None
    timeout_s: float | None = None
    deadline_s: float | None = None
    idempotency_key: str | None = None
    queue: str | None = None


class Event(Struct, frozen=True, kw_only=True):
    """One event of a job."""

    type: str
    """`queued`, `running`, `progress`, `token`, `log`, `retrying`, `done`, `error`, `canceled`, a
    type of the handler's own; or `gap`: events before the next one may be lost; or `rollback`: the
    job begins anew, and some earlier events do not count any more (`takes_back`)."""
    ts: int = 0
    step: str = ""
    data: Json = None
    id: str | None = None

    @property
    def ends_job(self) -> bool:
        """Whether this is the job's last event."""
        return self.type in ENDED

    def takes_back(self, earlier: "Event") -> bool:
        """Whether this is a `rollback` after which an earlier event does not count any more."""
        if self.type != "rollback" or earlier.type in STATE_EVENTS or earlier.id is None:
            return False
        to = self.data["to"] if isinstance(self.data, dict) else None
        return position_of(earlier.id) > position_of(str(to))


def position_of(event_id: str) -> tuple[int, int]:
    """An event's id `<ms>-<number>`, for comparison; ValueError if it is none."""
    time_ms, _, number = event_id.partition("-")
    return int(time_ms), int(number or 0)


class QueueEventInfo(QueueEventData, frozen=True, kw_only=True):
    """Something that happened on a queue; `gap`: events may be missing."""

    id: str | None = None

    @property
    def ends_job(self) -> bool:
        """Whether this may be the job's last event."""
        return self.event in _LAST_EVENTS


class ImageProgress(StatusEvent, frozen=True, kw_only=True, omit_defaults=False):
    """A state of an image, from its event stream."""

    event: str = ""

    @property
    def is_last(self) -> bool:
        """Whether the image is ready or has failed."""
        return self.event in ("ready", "failed")
