"""A real worker with the six tasks in this process, and access to what its jobs wrote."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from typing import Any, Final, Protocol

from jobwire.handlers.llm import LlmSettings
from jobwire.handlers.llm.models.factory import Models
from jobwire.job.messages import JobId, JobRequest, Submitted
from jobwire.systems.jobs.queue import StreamsQueue
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection
from jobwire.worker import App
from tests.handlers.llm.recorder import Event
from tests.support import Plain, wait_until

TOKENS: Final = 1500
ENDLESS: Final = {"prompt": "la " * 60, "max_tokens": TOKENS, "temperature": 0}
"""A prompt for which the small model always generates the same long text."""


class Fleet:
    """A worker with the six tasks, and a queue to submit to."""

    def __init__(self, connection: Connection, plain: Plain) -> None:
        self.queue = StreamsQueue(connection, StreamsSettings())
        self._plain = plain

    async def submit(self, task: str, payload: object, **order: Any) -> JobId:
        answer = await self.queue.submit(JobRequest(task, json.dumps(payload), **order))
        assert isinstance(answer, Submitted)
        return answer.job_id

    def hash(self, job_id: JobId) -> dict[str, str]:
        return self._plain.hgetall(f"job:{job_id}")  # pyright: ignore[reportReturnType] - typed in part

    def events(self, job_id: JobId) -> list[Event]:
        """All events that the wire holds."""
        rows: Any = self._plain.xrange(f"job:{job_id}:events")
        return [Event(row["type"], json.loads(row["data"]), row["step"]) for _, row in rows]

    async def end(self, job_id: JobId) -> dict[str, str]:
        """The job's hash once the job has ended."""
        ends = ("done", "error", "canceled")
        await wait_until(
            lambda: self.hash(job_id)["status"] in ends, "the end of the job", timeout_s=120
        )
        return self.hash(job_id)


class StartFleet(Protocol):
    """Starts a worker for these settings; it is stopped with the test."""

    def __call__(
        self, settings: LlmSettings, models: Models | None = None, app: App | None = None
    ) -> Awaitable[Fleet]: ...
