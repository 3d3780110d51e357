"""Request and response bodies of job schedulers, as types. Options have the names of npm BullMQ."""

from typing import Annotated, Any, Final

from pydantic import BaseModel, Field, StrictBool, StrictInt

from jobwire.wires.bullmq.http.schemas import NewJobOptions, example

_REPEAT: Final[dict[str, Any]] = {"pattern": "0 0 3 * * *", "tz": "Europe/Berlin"}
_SCHEDULER: Final[dict[str, Any]] = {
    "id": "nightly",
    "name": "report",
    "next": 1767225600000,
    "next_runs": [1767225600000, 1767312000000, 1767398400000],
    "made": 12,
    "repeat": _REPEAT,
    "data": {},
    "opts": {"attempts": 3},
}


class RepeatOptions(BaseModel):
    """When a scheduler's jobs are due: either `every` or `pattern`. Times are milliseconds."""

    model_config = example(_REPEAT, extra="forbid")
    every: StrictInt | None = Field(default=None, description="the interval")
    offset: StrictInt | None = Field(
        default=None, description="offset of the due time within the interval"
    )
    pattern: Annotated[str, Field(max_length=200)] | None = Field(
        default=None, description="a cron entry of five fields, or six with seconds in front"
    )
    tz: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="the time zone of the pattern; UTC without it"
    )
    immediately: StrictBool = Field(
        default=False, description="the first job of a pattern is due at once"
    )
    limit: StrictInt | None = Field(default=None, description="how many jobs are made in all")
    startDate: StrictInt | None = None  # noqa: N815 - the wire's name
    endDate: StrictInt | None = None  # noqa: N815 - the wire's name


class NewScheduler(BaseModel):
    """When jobs are made, and from which template; `name` is the scheduler's id without it."""

    model_config = example(
        {"repeat": _REPEAT, "name": "report", "data": {}, "opts": {"attempts": 3}}, extra="forbid"
    )
    repeat: RepeatOptions
    name: str = ""
    data: Any = Field(default_factory=dict, description="any JSON")
    opts: NewJobOptions = NewJobOptions()


class SetScheduler(BaseModel):
    """The scheduler's next job; null if none is due before its end: then nothing was set."""

    model_config = example(
        {"id": "nightly", "job_id": "repeat:nightly:1767225600000", "next": 1767225600000}
    )
    id: str
    job_id: str | None
    next: int | None


class QueueScheduler(BaseModel):
    """A scheduler; times are milliseconds since 1970."""

    model_config = example(_SCHEDULER)
    id: str
    name: str
    next: int | None = Field(description="when the next job is due; null: the scheduler has ended")
    next_runs: list[int] = Field(description="when the next jobs are due")
    made: int = Field(description="how many jobs it has made")
    repeat: RepeatOptions
    data: Any
    opts: Any


class QueueSchedulers(BaseModel):
    """A page of schedulers; `next` is the `first` of the next page."""

    model_config = example({"schedulers": [_SCHEDULER], "total": 1, "next": None})
    schedulers: list[QueueScheduler]
    total: int
    next: int | None
