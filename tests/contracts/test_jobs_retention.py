"""L-8: how long ended jobs are kept, and their idempotency keys."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from jobwire import App
from jobwire.job.messages import (
    Already,
    Canceled,
    Done,
    Failed,
    JobError,
    JobRequest,
    Mismatch,
    SettleAnswer,
    Submitted,
)
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection
from tests.support import clause
from tests.support.raw import Raw
from tests.support.streams import StreamsLab

pytestmark = clause("L-8")
MINUTE = timedelta(minutes=1)
KEPT = {"keep_done": timedelta(seconds=100), "keep_failed": timedelta(seconds=300)}


@pytest.mark.parametrize(
    ("outcome", "kept_s"),
    [(Done("1"), 100), (Canceled(), 100), (Failed(JobError("no", "no")), 300)],
)
async def test_l08_an_ended_job_is_kept_for_its_time(
    connection: Connection, raw: Raw, outcome: Done | Canceled | Failed, kept_s: int
) -> None:
    async with StreamsLab(connection, **KEPT) as lab:
        worker = await lab.worker()
        job_id = await lab.submit(ttl_s=1000)
        (leased,) = await worker.take(1)
        assert raw.ttl_s(f"job:{job_id}") >= 999, "unfinished jobs are kept"
        settled = await worker.settle([(leased, outcome)], 0)
        assert settled.answers == [SettleAnswer.SETTLED]
        for key in (f"job:{job_id}", f"job:{job_id}:events"):
            assert kept_s - 1 <= raw.ttl_s(key) <= kept_s
        assert not raw.exists(f"job:{job_id}:stub")


async def test_l08_the_bytes_of_a_tenant_are_kept_as_long_as_its_job(
    connection: Connection, raw: Raw
) -> None:
    async with StreamsLab(connection, tenant_max_bytes=10_000_000, **KEPT) as lab:
        worker = await lab.worker()
        await lab.submit(json.dumps({"text": "x" * 50_000}), ttl_s=100_000)
        (leased,) = await worker.take(1)
        await worker.settle([(leased, Done("1"))], 0)
        spans = raw.plain.hgetall("jobs:bytes:default")
        ends = {int(span) for span, size in spans.items() if span != "total" and int(size) > 0}
        assert ends
        assert max(ends) * 1000 <= raw.now_ms() + 110_000


async def test_l08_a_job_is_never_kept_longer_than_its_ttl(
    connection: Connection, raw: Raw
) -> None:
    async with StreamsLab(connection, **KEPT) as lab:
        worker = await lab.worker()
        job_id = await lab.submit(ttl_s=50)
        (leased,) = await worker.take(1)
        await worker.settle([(leased, Done("1"))], 0)
        assert 49 <= raw.ttl_s(f"job:{job_id}") <= 50


async def test_l08_a_handler_may_have_its_own(connection: Connection, raw: Raw) -> None:
    async with StreamsLab(connection, keep_done_of={"echo": timedelta(seconds=7)}, **KEPT) as lab:
        worker = await lab.worker()
        job_id = await lab.submit(ttl_s=1000)
        (leased,) = await worker.take(1)
        await worker.settle([(leased, Done("1"))], 0)
        assert 6 <= raw.ttl_s(f"job:{job_id}") <= 7


async def test_l08_the_idempotency_key_keeps_the_first_jobs_id(
    connection: Connection, raw: Raw
) -> None:
    async with StreamsLab(connection, **KEPT) as lab:
        worker = await lab.worker()
        request = JobRequest("echo", "{}", idempotency_key="k", fingerprint="f", ttl_s=1000)
        made = await lab.queue.submit(request)
        assert isinstance(made, Submitted)
        job_id = made.job_id
        (leased,) = await worker.take(1)
        await worker.settle([(leased, Done("1"))], 0)
        raw.plain.delete(f"job:{job_id}", f"job:{job_id}:events")  # its time is over
        assert await lab.queue.submit(request) == Already(job_id)
        assert await lab.queue.submit(request._replace(fingerprint="g")) == Mismatch(job_id)
        stub = await lab.queue.stub(job_id)
        assert stub is not None
        assert (stub.job_id, stub.status) == (job_id, "done")
        (name,) = raw.plain.keys("*idempotency:*")
        for key in (str(name), f"job:{job_id}:stub"):
            assert 999 <= raw.ttl_s(key) <= 1000


def test_l08_a_handler_declares_it() -> None:
    app = App()

    @app.handler("resize", keep_done=MINUTE)
    async def resize(payload: str) -> None: ...

    assert app.handlers["resize"].keep_done == MINUTE
    with pytest.raises(ValueError, match="keep_done"):
        app.handler("other", keep_done=timedelta(0))


@pytest.mark.parametrize("name", ["keep_done", "keep_failed"])
def test_l08_a_wrong_time_is_refused(name: str) -> None:
    with pytest.raises(Exception, match=name):
        StreamsSettings(**{name: timedelta(milliseconds=5)})  # pyright: ignore[reportArgumentType]
