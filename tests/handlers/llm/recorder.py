"""The worker's own job context with a report path of the test, which records all reports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, cast

import msgspec

from jobwire.handlers.llm import LlmSettings, register
from jobwire.handlers.llm.models.factory import Models
from jobwire.job.engine import StepRules, Use
from jobwire.job.errors import JobSuspended
from jobwire.job.messages import (
    NO_CHILDREN,
    RECORD_KIND,
    ChildrenRead,
    JobId,
    JobInfo,
    Json,
    Report,
    Restarted,
    Suspended,
)
from jobwire.worker import App, Context
from jobwire.worker.branches import Branches
from jobwire.worker.codec import MAX_RESULT_BYTES
from jobwire.worker.reports import REPORT_ADDED
from jobwire.worker.steps import StepRecord
from jobwire.worker.threads import Threads


class Event(NamedTuple):
    kind: str
    data: Any
    step: str


class RecordingSink:
    """Keeps events as they would go over the wire."""

    def __init__(
        self, hear: Callable[[Event], None] | None = None, record: Mapping[str, str] | None = None
    ) -> None:
        self.events: list[Event] = []
        self.steps = StepRecord(StepRules(262_144, 4_194_304, 1_000), record or {})
        self.stopped = False
        self.branches: Branches | None = None
        self.threads = Threads()
        self.uses: frozenset[Use] = frozenset()
        self.reserved_kinds: frozenset[str] = frozenset()
        self.replay = self.steps.replay
        self.any_progress = False
        self.max_result_bytes = MAX_RESULT_BYTES
        self._hear = hear

    def restart_timeout(self) -> None:
        """Nothing is timed here."""

    async def record(self, field: str, value: str, kind: str = RECORD_KIND) -> None:
        """The plan of a step adds it to `steps`."""

    def suspend(self, outcome: Suspended | Restarted) -> Awaitable[None]:
        raise JobSuspended

    def children(self) -> ChildrenRead:
        return ChildrenRead(NO_CHILDREN)

    def push(self, report: Report) -> None:
        self.add(report)

    def add(self, report: Report) -> Awaitable[None]:
        event = Event(report.kind, msgspec.json.decode(report.data_json), report.step)
        self.events.append(event)
        if self._hear is not None:
            self._hear(event)
        return REPORT_ADDED


class JobRecord(NamedTuple):
    """The outcome and the reports of a job."""

    result: Any
    """As its JSON would be read."""
    events: list[Event]

    def of(self, kind: str) -> list[Any]:
        return [event.data for event in self.events if event.kind == kind]

    def text(self) -> str:
        """The text as a reader of its tokens sees it."""
        return text_of(self.events)


def text_of(events: list[Event]) -> str:
    """The text that a client shows: it discards its text at a reset, and detects every gap."""
    text = ""
    for event in events:
        if event.kind == "reset":
            text = ""
        if event.kind == "token":
            assert event.data["at"] == len(text), "a gap, or a repeat"
            text += event.data["text"]
    return text


class Bench:
    """An app with the six tasks, whose handlers can be run one by one."""

    def __init__(self, settings: LlmSettings, app: App | None = None, models: Models | None = None):
        self.app = App() if app is None else app
        self.settings = settings
        self.models = register(self.app, settings, models)

    def context(
        self,
        task: str,
        payload: Mapping[str, object],
        *,
        attempt: int = 1,
        deliveries: int = 1,
        hear: Callable[[Event], None] | None = None,
        record: Mapping[str, str] | None = None,
    ) -> tuple[Context[Any], RecordingSink]:
        plain = cast("dict[str, Json]", dict(payload))
        job = JobInfo(JobId("job"), "bench", task, plain, attempt, deliveries, 0, "", "")
        checked = self.app.handlers[task].signature.check(plain)
        outlet = RecordingSink(hear, record)
        return Context(job, checked, outlet), outlet

    async def run(self, task: str, payload: Mapping[str, object], **about: Any) -> JobRecord:
        """Run one job to its end; what it raises is raised."""
        context, outlet = self.context(task, payload, **about)
        result = await self.handle(context)
        return JobRecord(msgspec.json.decode(msgspec.json.encode(result)), outlet.events)

    async def handle(self, context: Context[Any]) -> object:
        handler = self.app.handlers[context.job.task]
        return await handler.function(*handler.signature.arguments(context))
