"""J-53: named queues on the Streams wire, seen by workers and by a plain client."""

from __future__ import annotations

import asyncio

import pytest

from jobwire import App, Context
from jobwire.job.messages import (
    Done,
    Full,
    JobError,
    JobId,
    JobRequest,
    Released,
    RetryLater,
    SettleAnswer,
    Submitted,
)
from jobwire.settings import Settings, SettingsError
from jobwire.systems.jobs.app_queues import app_queues
from jobwire.systems.jobs.cron_store import StreamsCronStore
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.queue import StreamsQueue
from jobwire.valkey import Connection
from jobwire.worker import Worker
from tests.conformance.lab import TASK
from tests.support import clause, wait_until
from tests.support.raw import Raw, Recording, foreign_job
from tests.support.streams import StreamsLab

DEFAULT = "jobs:stream"
MEDIA = "jobs:stream:media"
MAIL = "jobs:stream:mail"
FAILED = JobError("handler_error", "the handler failed", retryable=True)


def events(raw: Raw, job_id: str) -> list[str]:
    return [event["type"] for _, event in raw.entries(f"job:{job_id}:events")]


# ── the wire ─────────────────────────────────────────────────────────────────────────────────────


@clause("J-53")
async def test_j53_a_named_queue_has_the_same_entry_hash_and_events(
    lab: StreamsLab, raw: Raw
) -> None:
    worker = await lab.worker(queues=("media",))
    job_id = await lab.submit(queue="media")
    assert raw.length(DEFAULT) == 0
    ((entry_id, entry),) = raw.entries(MEDIA)
    assert entry == {"job_id": job_id, "task": TASK, "payload": '{"a":1}'}
    fields = raw.fields(f"job:{job_id}")
    assert (fields["queue"], fields["entry_id"]) == ("media", entry_id)
    (leased,) = await worker.take(5)
    assert (leased.job.id, leased.job.source) == (job_id, "media")
    assert raw.pending(MEDIA) == {entry_id: worker.consumer}
    settled = await worker.settle([(leased, Done("1"))], 0)
    assert settled.answers == [SettleAnswer.SETTLED]
    assert events(raw, job_id) == ["queued", "running", "done"]
    assert (raw.length(MEDIA), raw.pending(MEDIA)) == (0, {})
    assert raw.call("SMEMBERS", "jobs:queues") in (["media"], {"media"})


@clause("J-53")
async def test_j53_a_job_of_the_default_queue_has_no_extra(lab: StreamsLab, raw: Raw) -> None:
    job_id = await lab.submit(queue="default")
    assert "queue" not in raw.fields(f"job:{job_id}")
    assert raw.length(DEFAULT) == 1


@clause("J-53")
async def test_j53_one_queue_costs_the_same_commands_whatever_its_name(
    lab: StreamsLab, raw: Raw
) -> None:
    sent: list[list[str]] = []
    for queue in ("default", "media"):
        worker = await lab.worker(queues=(queue,))
        await worker.take(1)  # the first one also checks for expired leases
        for _ in range(3):
            await lab.submit(queue=queue)
        with Recording(raw) as seen:
            assert await worker.wait(30, 2)
            leased = await worker.take(3)
            await worker.settle([(each, Done("1")) for each in leased], 1)
        names = [command[0].upper() for command in seen.commands]
        sent.append([name for name in names if name in ("XREADGROUP", "EVALSHA", "XPENDING")])
    assert sent[0] == sent[1]


@clause("J-53")
async def test_j53_jobs_with_equal_entry_ids_in_two_queues_are_distinguished(
    lab: StreamsLab, raw: Raw
) -> None:
    """Entry ids are unique in one stream only."""
    worker = await lab.worker(queues=("media", "mail"))
    jobs = {"media": await lab.submit(queue="media", delay_s=600)}
    jobs["mail"] = await lab.submit(queue="mail", delay_s=600)
    for queue, job_id in jobs.items():
        raw.call("ZREM", "jobs:delayed", job_id)
        fields = ("job_id", job_id, "task", TASK, "payload", "{}")
        raw.call("XADD", f"jobs:stream:{queue}", "9999999999999-7", *fields)
    leased = await worker.take(5)
    assert sorted(each.job.source for each in leased) == ["mail", "media"]
    assert len({each.token for each in leased}) == 2
    assert await worker.recover_orphans({each.token for each in leased}) == []
    settled = await worker.settle([(each, Done(f'"{each.job.source}"')) for each in leased], 0)
    assert settled.answers == [SettleAnswer.SETTLED] * 2
    for queue, job_id in jobs.items():
        assert raw.field(f"job:{job_id}", "result") == f'"{queue}"'
        assert events(raw, job_id)[-1] == "done"


# ── taking ───────────────────────────────────────────────────────────────────────────────────────


@clause("J-53")
async def test_j53_one_blocking_read_serves_all_queues_of_a_worker(
    lab: StreamsLab, raw: Raw
) -> None:
    worker = await lab.worker(queues=("default", "media", "mail"))
    for queue in ("mail", "default", "media"):
        waiting = asyncio.ensure_future(worker.wait(30, 2))
        await wait_until(raw.blocked, "the worker to wait")
        assert raw.blocked() == 1
        job_id = await lab.submit(queue=queue)
        assert await waiting
        (leased,) = await worker.take(2)
        assert (leased.job.id, leased.job.source) == (job_id, queue)
        await worker.settle([(leased, Done("1"))], 0)
    await wait_until(lab.at_rest)


@clause("J-53")
async def test_j53_entries_beyond_the_capacity_are_returned_uncounted(
    lab: StreamsLab, raw: Raw
) -> None:
    """A read of several streams may return one entry of each."""
    queues = ("default", "media", "mail")
    worker = await lab.worker(queues=queues)
    jobs = [await lab.submit(queue=queue) for queue in queues]
    assert await worker.wait(30, 1)
    (first,) = await worker.take(1)
    others = [job_id for job_id in jobs if job_id != first.job.id]
    for job_id in others:
        fields = raw.fields(f"job:{job_id}")
        assert fields["status"] == "queued"
        assert "deliveries" not in fields
        assert "attempt" not in fields
        assert events(raw, job_id) == ["queued"]
    pending = [each for key in (DEFAULT, MEDIA, MAIL) for each in raw.pending(key)]
    assert len(pending) == 1, "the others are not held"
    other = await lab.worker(queues=queues)
    leased = await other.take(5)
    assert {each.job.id for each in leased} == set(others)
    assert {each.job.deliveries for each in leased} == {1}
    await other.settle([(each, Done("1")) for each in leased], 0)
    await worker.settle([(first, Done("1"))], 0)
    await wait_until(lab.at_rest)


@clause("J-53")
async def test_j53_a_long_queue_does_not_keep_a_worker_from_the_others(lab: StreamsLab) -> None:
    worker = await lab.worker(queues=("default", "media"))
    for _ in range(8):
        await lab.submit()
    job_id = await lab.submit(queue="media")
    taken: list[JobId] = []
    for _ in range(2):
        leased = await worker.take(2)
        taken += [each.job.id for each in leased]
        await worker.settle([(each, Done("1")) for each in leased], 0)
    assert job_id in taken
    while leased := await worker.take(5):
        await worker.settle([(each, Done("1")) for each in leased], 0)


@clause("J-53")
@pytest.mark.parametrize("blow", ["DEL", "XGROUP DESTROY"])
async def test_j53_a_missing_group_of_one_queue_is_created_again(
    lab: StreamsLab, raw: Raw, blow: str
) -> None:
    """A read of several streams fails as a whole if one of them has no group."""
    worker = await lab.worker(queues=("default", "media"))
    raw.call(*blow.split(), MEDIA, *(("workers",) if blow != "DEL" else ()))
    assert not await worker.wait(1)
    job_id = await lab.submit()
    assert await worker.wait(30)
    (leased,) = await worker.take(5)
    assert leased.job.id == job_id
    await worker.settle([(leased, Done("1"))], 0)


@clause("J-53")
async def test_j53_a_full_worker_watches_all_queues_without_reading(
    lab: StreamsLab, raw: Raw
) -> None:
    worker = await lab.worker(queues=("default", "media"))
    waiting = asyncio.ensure_future(worker.wait(30, 0))
    await wait_until(raw.blocked, "the worker to wait")
    await lab.submit(queue="media")
    assert await waiting
    assert raw.pending(MEDIA) == {}
    (leased,) = await worker.take(1)
    await worker.settle([(leased, Done("1"))], 0)


# ── a job stays in its queue ─────────────────────────────────────────────────────────────────────


@clause("J-53")
@pytest.mark.parametrize("delay_s", [0.0, 0.001])
async def test_j53_a_retry_stays_in_the_queue_of_its_job(
    lab: StreamsLab, raw: Raw, delay_s: float
) -> None:
    worker = await lab.worker(queues=("default", "media"))
    job_id = await lab.submit(queue="media")
    (leased,) = await worker.take(1)
    await worker.settle([(leased, RetryLater(delay_s, FAILED))], 0)
    await wait_until(lambda: _promoted(lab, raw), "the retry to be due")
    assert [entry["job_id"] for _, entry in raw.entries(MEDIA)] == [job_id]
    assert raw.length(DEFAULT) == 0
    (leased,) = await worker.take(1)
    assert (leased.job.attempt, leased.job.source) == (2, "media")
    await worker.settle([(leased, Done("1"))], 0)


async def _promoted(lab: StreamsLab, raw: Raw) -> bool:
    await lab.maintain("promote")
    return raw.length(DEFAULT) + raw.length(MEDIA) > 0


@clause("J-53")
async def test_j53_a_release_and_a_reclaim_stay_in_the_queue(lab: StreamsLab, raw: Raw) -> None:
    worker = await lab.worker(queues=("media",))
    job_id = await lab.submit(queue="media")
    (leased,) = await worker.take(1)
    await worker.settle([(leased, Released())], 0)
    assert [entry["job_id"] for _, entry in raw.entries(MEDIA)] == [job_id]
    (leased,) = await worker.take(1)
    await lab.silence(worker)
    other = await lab.worker(queues=("media", "default"))
    (reclaimed,) = await other.take(1)
    assert (reclaimed.job.id, reclaimed.job.source) == (job_id, "media")
    assert (await worker.settle([(leased, Done("0"))], 0)).answers == [SettleAnswer.LOST]
    await lab.silence(other)
    assert await lab.maintain("reclaim") == 1
    assert [entry["job_id"] for _, entry in raw.entries(MEDIA)] == [job_id]
    assert raw.pending(MEDIA) == {}
    (leased,) = await worker.take(1)
    await worker.settle([(leased, Done("1"))], 0)
    assert events(raw, job_id)[-1] == "done"


@clause("J-53")
async def test_j53_a_worker_reclaims_only_jobs_of_its_own_queues(lab: StreamsLab) -> None:
    worker = await lab.worker(queues=("media",))
    await lab.submit(queue="media")
    (leased,) = await worker.take(1)
    await lab.silence(worker)
    other = await lab.worker(queues=("mail",))
    assert await other.take(5) == []
    await worker.settle([(leased, Done("1"))], 0)


@clause("J-53")
async def test_j53_a_job_without_an_entry_gets_one_in_its_queue(lab: StreamsLab, raw: Raw) -> None:
    worker = await lab.worker(queues=("media",))
    job_id = await lab.submit(queue="media")
    assert await lab.maintain("reconcile") == 0
    raw.call("XTRIM", MEDIA, "MAXLEN", 0)
    raw.call("HSET", f"job:{job_id}", "updated_ts", "1000")  # a lease ago
    assert await lab.maintain("reconcile") == 1
    assert raw.length(DEFAULT) == 0
    (leased,) = await worker.take(1)
    assert leased.job.id == job_id
    await worker.settle([(leased, Done("1"))], 0)


@clause("J-53")
async def test_j53_a_canceled_job_leaves_its_queue(lab: StreamsLab, raw: Raw) -> None:
    job_id = await lab.submit(queue="media")
    await lab.queue.cancel(job_id)
    assert raw.length(MEDIA) == 0
    assert events(raw, job_id) == ["queued", "canceled"]


@clause("J-53")
async def test_j53_jobs_of_a_foreign_gateway_in_a_named_queue_are_served(
    lab: StreamsLab, raw: Raw
) -> None:
    worker = await lab.worker("echo", queues=("media",))
    entry = foreign_job(raw, "foreign-1")
    ((_, content),) = raw.entries(DEFAULT)
    raw.call("XDEL", DEFAULT, entry)
    raw.add(MEDIA, content)
    assert await lab.maintain("index_foreign") == 1
    (leased,) = await worker.take(1)
    await worker.settle([(leased, RetryLater(0, FAILED))], 0)
    assert [entry["job_id"] for _, entry in raw.entries(MEDIA)] == ["foreign-1"]
    (leased,) = await worker.take(1)
    await worker.settle([(leased, Done("1"))], 0)
    assert events(raw, "foreign-1")[-1] == "done"


@clause("J-53")
async def test_j53_a_cron_job_is_enqueued_in_the_queue_of_its_entry(
    lab: StreamsLab, raw: Raw
) -> None:
    store = StreamsCronStore(lab.connection, lab.settings, {"nightly": "media"})
    state = await store.enroll("nightly", "* * * * *")
    due_ms = state.due_ms
    raw.call("HSET", "jobs:cron:nightly", "* * * * *", f"{due_ms - 1} {due_ms}")
    answer = await store.submit_due("nightly", "* * * * *", due_ms, JobRequest(TASK, "{}"))
    assert isinstance(answer, Submitted)
    assert [entry["job_id"] for _, entry in raw.entries(MEDIA)] == [answer.job_id]
    assert raw.field(f"job:{answer.job_id}", "queue") == "media"
    await lab.queue.cancel(answer.job_id)


# ── backpressure, maintenance ────────────────────────────────────────────────────────────────────


@clause("J-53", "J-12")
async def test_j12_a_full_queue_does_not_refuse_jobs_of_another(connection: Connection) -> None:
    async with StreamsLab(connection, max_queue=2) as lab:
        for _ in range(2):
            await lab.submit(queue="media")
        request = JobRequest(TASK, "{}", queue="media")
        assert await lab.queue.submit(request) == Full(2)
        await lab.submit()
        await lab.submit(delay_s=600)
        assert await lab.queue.submit(JobRequest(TASK, "{}", queue="mail")) != Full(2)
        assert await lab.queue.submit(JobRequest(TASK, "{}")) == Full(2), "delayed jobs count"


@clause("J-53", "J-41")
@pytest.mark.parametrize("task", ["promote", "reconcile"])
async def test_j53_a_job_of_a_refused_queue_keeps_no_other_waiting(
    lab: StreamsLab, raw: Raw, task: str
) -> None:
    """Regression: one queue of another type, and no delayed or lost job was queued any more."""
    jobs = [await lab.submit(queue=queue, delay_s=3600) for queue in ("mail", "media")]
    raw.call("SET", MAIL, "no stream")
    for at, job_id in enumerate(jobs):
        if task == "promote":
            raw.call("ZADD", "jobs:delayed", at + 1, job_id)
        else:
            raw.call("ZREM", "jobs:delayed", job_id)
            raw.call("HSET", f"job:{job_id}", "updated_ts", raw.now_ms() - 10**7)
    assert await lab.maintain(task) == 1
    assert [entry["job_id"] for _, entry in raw.entries(MEDIA)] == jobs[1:]
    raw.delete(MAIL)
    raw.call("HSET", f"job:{jobs[0]}", "updated_ts", raw.now_ms() - 10**7)
    await lab.maintain("reconcile")
    assert [entry["job_id"] for _, entry in raw.entries(MAIL)] == jobs[:1], "once it is repaired"


@clause("J-53", "J-41")
async def test_j53_a_refused_queue_keeps_no_other_from_maintenance(
    lab: StreamsLab, raw: Raw
) -> None:
    raw.call("SADD", "jobs:queues", "mail", "media")
    raw.call("SET", MAIL, "no stream")
    foreign_job(raw, "one")
    (_, entry), *_ = raw.entries(DEFAULT)
    raw.add(MEDIA, entry)
    raw.delete(DEFAULT)
    assert await lab.maintain("index_foreign") == 1
    raw.delete(MEDIA)
    assert await lab.maintain("janitor") == 1
    assert raw.call("SMEMBERS", "jobs:queues") == ["mail"]
    raw.delete(MAIL)


@clause("J-53", "J-41")
async def test_j53_maintenance_reaches_more_queues_than_one_call_handles(
    lab: StreamsLab, raw: Raw
) -> None:
    queues = [f"q{number}" for number in range(150)]
    worker = await lab.worker(queues=queues)
    job_id = await lab.submit(queue="q149")
    (leased,) = await worker.take(1)
    await lab.silence(worker)

    async def is_requeued() -> bool:
        return await lab.maintain("reclaim") == 1

    await wait_until(is_requeued, "maintenance to handle the queue")
    assert [entry["job_id"] for _, entry in raw.entries("jobs:stream:q149")] == [job_id]
    assert (await worker.settle([(leased, Done("0"))], 0)).answers == [SettleAnswer.LOST]
    (leased,) = await worker.take(1)
    await worker.settle([(leased, Done("1"))], 0)


@clause("J-53")
async def test_j53_a_queue_without_jobs_and_workers_is_removed(lab: StreamsLab, raw: Raw) -> None:
    worker = await lab.worker(queues=("media",))
    await lab.maintain("janitor")
    assert raw.exists(MEDIA) == 1, "a worker reads it"
    await worker.deregister()
    job_id = await lab.submit(queue="media")
    await lab.maintain("janitor")
    assert raw.exists(MEDIA) == 1, "a job waits"
    await lab.queue.cancel(job_id)
    await lab.maintain("janitor")
    assert raw.exists(MEDIA, "jobs:queues") == 0


# ── which queues a worker reads ──────────────────────────────────────────────────────────────────


def app_of(name: str, **queues: str) -> App:
    """An App with these tasks; the value is the handler's queue, if any."""
    app = App(name)
    for task, queue in queues.items():

        @app.handler(task, queue=queue)
        async def handler(ctx: Context) -> str:
            return ctx.job.task

    return app


@clause("J-53")
@pytest.mark.parametrize(
    ("app", "queues", "by_task"),
    [
        (app_of("shop", resize=""), ("shop",), {"resize": "shop"}),
        (app_of("shop", chat=""), ("default",), {"chat": "default"}),
        (
            app_of("shop", resize="", chat=""),
            ("shop", "default"),
            {"resize": "shop", "chat": "default"},
        ),
        (app_of("shop", resize="media"), ("media",), {"resize": "media"}),
        (app_of("shop", resize="default"), ("default",), {"resize": "default"}),
        # Without a name it is that of the module that has made it.
        (app_of("", resize=""), (__name__,), {"resize": __name__}),
    ],
)
def test_j53_a_task_is_in_the_queue_of_its_handler_or_its_app(
    app: App, queues: tuple[str, ...], by_task: dict[str, str]
) -> None:
    found = app_queues(app, Settings())
    assert (found.queues, found.by_task) == (queues, by_task)


@clause("J-53")
def test_j53_an_invalid_name_of_a_queue_is_refused() -> None:
    for app in (app_of("my shop", resize=""), app_of("shop", resize="a:b")):
        with pytest.raises(SettingsError, match="is not a valid queue name: use up to 100 letters"):
            app_queues(app, Settings())


@clause("J-53")
async def test_j53_no_entry_is_delivered_to_a_worker_without_its_task(
    lab: StreamsLab, raw: Raw
) -> None:
    apps = {"media": app_of("media", resize=""), "mail": app_of("mail", send="")}
    workers: dict[str, Worker] = {}
    consumers: dict[str, str] = {}
    for name, app in apps.items():
        found = app_queues(app, Settings())
        engine = StreamsEngine(
            lab.connection, lab.settings, queues=found.queues, task_queues=found.by_task
        )
        workers[name], consumers[name] = Worker(app, [engine], drain_s=1), engine.consumer
    runs = [asyncio.ensure_future(worker.run()) for worker in workers.values()]
    for worker in workers.values():
        await worker.ready.wait()
    queue = StreamsQueue(lab.connection, lab.settings)
    with Recording(raw) as seen:
        jobs: list[JobId] = []
        for number in range(40):
            task, name = (("resize", "media"), ("send", "mail"))[number % 2]
            answer = await queue.submit(JobRequest(task, "{}", queue=name))
            assert isinstance(answer, Submitted)
            jobs.append(answer.job_id)
        await wait_until(
            lambda: all(raw.field(f"job:{job_id}", "status") == "done" for job_id in jobs),
            "all jobs to end",
        )
    for number, job_id in enumerate(jobs):
        fields = raw.fields(f"job:{job_id}")
        assert fields["worker"] == consumers[("media", "mail")[number % 2]]
        assert "unknown_ts" not in fields, "it was never returned"
    reads = [command for command in seen.commands if command[0].upper() == "XREADGROUP"]
    assert {(command[3], key) for command in reads for key in (MEDIA, MAIL) if key in command} == {
        (consumers["media"], MEDIA),
        (consumers["mail"], MAIL),
    }
    assert not [command for command in reads if DEFAULT in command]
    assert raw.consumers(MEDIA) == [consumers["media"]]
    for worker in workers.values():
        worker.stop()
    await asyncio.gather(*runs)
