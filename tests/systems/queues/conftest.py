"""A queue and a consumer of ours on the worker's server, with a clock that tests set."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobwire.job import retry
from jobwire.job.messages import Failed, JobError, RetryLater
from jobwire.systems.queues.add_batcher import Added
from jobwire.systems.queues.admin import QueueAdmin
from jobwire.systems.queues.codec import JobHash, Took
from jobwire.systems.queues.consumer import BullConsumer, SettledAttempt
from jobwire.systems.queues.leased_jobs import leased_job
from jobwire.systems.queues.options import BullJobOptions
from jobwire.systems.queues.queue import QueueProducer
from jobwire.systems.queues.settings import BullSettings
from jobwire.valkey import Connection
from tests.support import Plain
from tests.support.raw import Fields, Raw

QUEUE = "video-generation"
START_MS = 1_800_000_000_000
KEY = f"bull:{QUEUE}:"


def after_failure(
    job: JobHash, *, retryable: bool = True, random_fraction: float = 0.5
) -> RetryLater | Failed:
    """The outcome that a worker settles after a failed attempt, by the job's own options."""
    leased = leased_job(job, "token", QUEUE)
    return retry.outcome(
        JobError("crashed", "no disk", retryable),
        attempt=leased.job.attempt,
        max_attempts=leased.policy.max_attempts or 1,
        backoff=leased.policy.backoff or retry.DEFAULT,
        random_fraction=random_fraction,
    )


class OftenRenewed(BullSettings):
    """Locks that no stop of a process and no busy machine loses; that one is lost is noticed
    at once."""

    @property
    def renew_every_ms(self) -> int:
        return 100


class Site:
    """Producer and consumer of one queue, and a raw client for its keys."""

    def __init__(self, connection: Connection, plain: Plain, **settings: Any) -> None:
        self.now_ms = START_MS
        self.settings = BullSettings(**settings)
        self.queue = QueueProducer(connection, QUEUE, self.settings, now_ms=lambda: self.now_ms)
        self.admin = QueueAdmin(self.queue)
        self.consumer = BullConsumer(
            connection,
            QUEUE,
            self.settings,
            name="w1",
            worker_id="worker-1",
            now_ms=lambda: self.now_ms,
        )
        self.raw = Raw(plain)
        self._tokens = 0

    def later(self, ms: int) -> None:
        self.now_ms += ms

    async def add(self, name: str = "video-generation", data: object = None, **options: Any) -> str:
        answer = await self.queue.submit(name, json.dumps(data or {}), BullJobOptions(**options))
        assert isinstance(answer, Added), answer
        return answer.job_id

    async def take(self) -> tuple[JobHash, str]:
        self._tokens += 1
        token = f"token-{self._tokens}"
        answer = await self.consumer.take(token)
        assert isinstance(answer, Took), answer
        return answer.job, token

    async def complete(self, result: object = None) -> str:
        job, token = await self.take()
        assert await self.consumer.complete(job, token, json.dumps(result)) == SettledAttempt()
        return job.id

    def hash(self, job_id: str) -> Fields:
        return self.raw.fields(f"{KEY}{job_id}")

    def events(self) -> list[Fields]:
        return [fields for _, fields in self.raw.entries(f"{KEY}events")]

    def last(self, name: str) -> Fields:
        return next(event for event in reversed(self.events()) if event["event"] == name)

    def ids(self, name: str) -> Any:
        key = f"{KEY}{name}"
        if self.raw.kind(key) == "zset":
            return self.raw.members(key)
        return self.raw.call("LRANGE", key, 0, -1)


@pytest.fixture
def site(connection: Connection, plain: Plain) -> Site:
    return Site(connection, plain)


@pytest.fixture
def sparse(connection: Connection, plain: Plain) -> Site:
    """Without the extras: exactly what the official package writes."""
    return Site(connection, plain, extras=False)
