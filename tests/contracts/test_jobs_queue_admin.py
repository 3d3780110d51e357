"""J-53: queues that are paused, resumed and purged; the doctor's check of queues."""

from __future__ import annotations

import asyncio

from jobwire import App, Context
from jobwire.doctor import Finding
from jobwire.job.messages import Done
from jobwire.local import LocalValkey
from jobwire.systems.jobs.doctor import Place, examine_queues
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.queue_admin import JobQueueAdmin
from jobwire.valkey import Config
from jobwire.worker import Worker
from tests.conformance.lab import TASK
from tests.support import clause, wait_until
from tests.support.raw import Raw
from tests.support.streams import StreamsLab

MEDIA = "jobs:stream:media"


def events(raw: Raw, job_id: str) -> list[str]:
    return [event["type"] for _, event in raw.entries(f"job:{job_id}:events")]


# ── pause, resume, purge ─────────────────────────────────────────────────────────────────────────


@clause("J-53")
async def test_j53_no_job_of_a_paused_queue_is_started(lab: StreamsLab, raw: Raw) -> None:
    admin = JobQueueAdmin(lab.connection, lab.settings)
    worker = await lab.worker(queues=("default", "media"))
    running = await lab.submit(queue="media")
    (leased,) = await worker.take(1)
    assert await admin.pause("media")
    assert await admin.paused() == {"media"}
    waiting = await lab.submit(queue="media")
    other = await lab.submit()
    (second,) = await worker.take(5)
    assert second.job.id == other
    assert not await worker.wait(0.05, 2), "it does not read the paused queue"
    assert raw.field(f"job:{waiting}", "status") == "queued"
    settled = await worker.settle([(leased, Done("1")), (second, Done("1"))], 5)
    assert settled.leased == []
    assert events(raw, running)[-1] == "done", "running jobs continue"
    assert await admin.resume("media")
    (third,) = await worker.take(5)
    assert (third.job.id, third.job.deliveries) == (waiting, 1)
    await worker.settle([(third, Done("1"))], 0)


@clause("J-53")
async def test_j53_an_entry_read_from_a_queue_that_is_paused_meanwhile_is_returned(
    lab: StreamsLab, raw: Raw
) -> None:
    admin = JobQueueAdmin(lab.connection, lab.settings)
    worker = await lab.worker(queues=("media",))
    waiting = asyncio.ensure_future(worker.wait(30, 2))
    await wait_until(raw.blocked, "the worker to wait")
    await admin.pause("media")  # nothing listens to the control channel for this engine
    job_id = await lab.submit(queue="media")
    await waiting
    assert await worker.take(2) == []
    fields = raw.fields(f"job:{job_id}")
    assert (fields["status"], "deliveries" in fields) == ("queued", False)
    assert (raw.length(MEDIA), raw.pending(MEDIA)) == (1, {})
    assert not await worker.wait(0.05, 2)
    await lab.silence(worker)
    await admin.resume("media")
    (leased,) = await worker.take(2)
    await worker.settle([(leased, Done("1"))], 0)


@clause("J-53")
async def test_j53_a_reclaimed_job_of_a_paused_queue_waits_there(lab: StreamsLab, raw: Raw) -> None:
    admin = JobQueueAdmin(lab.connection, lab.settings)
    worker = await lab.worker(queues=("media",))
    job_id = await lab.submit(queue="media")
    await worker.take(1)
    await lab.silence(worker)
    await admin.pause("media")
    other = await lab.worker(queues=("media",))
    assert await other.take(5) == []
    assert raw.field(f"job:{job_id}", "status") == "queued"
    await admin.resume("media")
    (leased,) = await other.take(5)
    await other.settle([(leased, Done("1"))], 0)


@clause("J-53")
async def test_j53_a_pause_reaches_waiting_workers_and_a_resume_wakes_them(
    lab: StreamsLab, raw: Raw
) -> None:
    app = App()

    @app.handler(TASK)
    async def echo(ctx: Context) -> str:
        return ctx.job.source

    admin = JobQueueAdmin(lab.connection, lab.settings)
    engine = StreamsEngine(lab.connection, lab.settings, queues=("media",))
    worker = Worker(app, [engine], drain_s=1)
    running = asyncio.ensure_future(worker.run())
    await worker.ready.wait()
    await wait_until(raw.blocked, "the worker to wait")
    await wait_until(lambda: raw.call("PUBSUB", "NUMSUB", "jobs:control") == ["jobs:control", 1])
    await admin.pause("media")
    await wait_until(lambda: not raw.blocked(), "the worker to leave the queue")
    job_id = await lab.submit(queue="media")
    assert raw.field(f"job:{job_id}", "status") == "queued"
    await admin.resume("media")
    await wait_until(lambda: raw.field(f"job:{job_id}", "status") == "done", "the job to run")
    assert raw.field(f"job:{job_id}", "result") == '"media"'
    worker.stop()
    await running


@clause("J-53")
async def test_j53_a_purge_cancels_waiting_jobs_with_their_terminal_event(
    lab: StreamsLab, raw: Raw
) -> None:
    admin = JobQueueAdmin(lab.connection, lab.settings)
    worker = await lab.worker(queues=("media", "mail"))
    running = await lab.submit(queue="media")
    (leased,) = await worker.take(1)
    waiting = [await lab.submit(queue="media") for _ in range(230)]  # more than one call handles
    delayed = await lab.submit(queue="media", delay_s=600, idempotency_key="late")
    others = [await lab.submit(queue="mail"), await lab.submit(queue="mail", delay_s=600)]
    assert await admin.purge("media") == 231
    for job_id in (*waiting, delayed):
        assert events(raw, job_id) == ["queued", "canceled"]
        assert raw.field(f"job:{job_id}", "status") == "canceled"
    assert raw.ttl_s(f"job:{delayed}") <= 300
    assert raw.entries(f"job:{delayed}:events")[-1][1]["step"] == "gateway.purge"
    assert raw.length(MEDIA) == 1
    assert raw.members("jobs:delayed") == [others[1]]
    assert {raw.field(f"job:{job_id}", "status") for job_id in others} == {"queued"}
    await worker.settle([(leased, Done("1"))], 0)
    assert events(raw, running)[-1] == "done"
    assert await admin.purge("mail") == 2
    assert await admin.purge("nowhere") is None
    await wait_until(lab.at_rest)


@clause("J-53")
async def test_j53_a_purge_of_the_default_queue_leaves_named_ones(
    lab: StreamsLab, raw: Raw
) -> None:
    admin = JobQueueAdmin(lab.connection, lab.settings)
    media = await lab.submit(queue="media", delay_s=600)
    jobs = [await lab.submit(), await lab.submit(delay_s=600), await lab.submit(tenant="acme")]
    assert await admin.purge("default", "default") == 2
    assert await admin.purge("default", "acme") == 1
    assert {raw.field(f"job:{job_id}", "status") for job_id in jobs} == {"canceled"}
    assert raw.field(f"job:{media}", "status") == "queued"
    await lab.queue.cancel(media)


@clause("J-53", "O-7")
async def test_j53_doctor_finds_queues_that_are_paused_or_that_no_worker_reads(
    lab: StreamsLab, valkey: LocalValkey
) -> None:
    async def found() -> dict[str, Finding]:
        place = Place(Config.from_url(valkey.url), lab.settings)
        return {each.check: each async for each in examine_queues([place])}

    admin = JobQueueAdmin(lab.connection, lab.settings)
    job_id = await lab.submit(queue="media")
    unread = (await found())["queue media"].found
    assert unread == "1 job waiting, and no live worker reads it"
    await admin.pause("media")
    assert (await found())["queue media"].found == "it is paused"
    await admin.resume("media")
    worker = await lab.worker(queues=("media",))
    assert [each.verdict for each in (await found()).values()] == ["ok"]
    await lab.worker(queues=("other",))
    split = (await found())[f"task {TASK}"]
    assert (split.verdict, split.found) == ("note", "live in 2 queues: other, media")
    (leased,) = await worker.take(1)
    assert leased.job.id == job_id
    await worker.settle([(leased, Done("1"))], 0)
