"""J-30: workers take jobs through failures of the server and of the connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import pytest

from jobwire.job.errors import BackendUnavailable
from jobwire.job.messages import (
    Done,
    LeasedJob,
    RenewAnswer,
    Report,
    ReportAnswer,
    SettleAnswer,
)
from jobwire.local import LocalValkey
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.scripts import SCRIPTS
from jobwire.valkey import Connection
from tests.support import Proxy, clause, wait_until
from tests.support.raw import Raw, Recording
from tests.support.servers import plain_client
from tests.support.streams import StreamsLab, runs

QUEUE = "jobs:stream"


async def take_from(worker: StreamsEngine, what: str) -> Sequence[LeasedJob]:
    return await wait_until(lambda: worker.take(5), what)


# ── J-30 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-30")
async def test_j30_jobs_submitted_before_the_first_worker_are_taken(
    lab: StreamsLab, raw: Raw
) -> None:
    job_id = await lab.submit()
    assert raw.exists(QUEUE) == 1
    worker = await lab.worker()
    leased = await worker.take(5)
    assert [one.job.id for one in leased] == [job_id]
    await worker.settle([(leased[0], Done("1"))], 0)


@clause("J-30")
async def test_j30_take_reads_and_starts_in_one_script(lab: StreamsLab, raw: Raw) -> None:
    worker = await lab.worker()
    await worker.take(1)  # the first one also looks for silent workers
    for _ in range(5):
        await lab.submit()
    with Recording(raw) as seen:
        leased = await worker.take(3)
    assert seen.scripts == 1
    assert len(leased) == 3
    assert set(raw.pending(QUEUE).values()) == {worker.consumer}
    assert len(raw.pending(QUEUE)) == 3, "no more is read than can be started"
    await worker.settle([(one, Done("1")) for one in leased], 0)


@clause("J-30")
async def test_j30_entries_fetched_by_a_wait_are_started_first(lab: StreamsLab) -> None:
    worker = await lab.worker()
    waiting = asyncio.ensure_future(worker.wait(30))
    job_ids = [await lab.submit(f'{{"n":{n}}}') for n in range(3)]
    assert await waiting
    leased = await worker.take(2)
    assert [(one.job.id, one.job.payload) for one in leased] == [
        (job_ids[0], {"n": 0}),
        (job_ids[1], {"n": 1}),
    ]
    await worker.settle([(one, Done("1")) for one in leased], 0)


@clause("J-30")
@pytest.mark.parametrize("blow", ["FLUSHALL", "DEL jobs:stream", "XGROUP DESTROY"])
async def test_j30_a_worker_survives_an_emptied_server(
    lab: StreamsLab, raw: Raw, blow: str
) -> None:
    worker = await lab.worker()
    waiting = asyncio.ensure_future(worker.wait(30))
    await wait_until(lambda: raw.plain.info("clients")["blocked_clients"] == 1, "the blocked read")
    args = blow.split() if blow != "XGROUP DESTROY" else [*blow.split(), QUEUE, "workers"]
    raw.call(*args)
    assert not await waiting
    job_id = await lab.submit()
    assert await worker.wait(30)
    leased = await worker.take(5)
    assert [one.job.id for one in leased] == [job_id]
    raw.call(*args)
    assert await worker.take(5) == [] or blow == "XGROUP DESTROY"


@clause("J-30")
async def test_j30_a_worker_survives_a_restarted_server(own_valkey: LocalValkey) -> None:
    async with Connection.open(own_valkey.url) as connection, StreamsLab(connection) as lab:
        worker, leased = await lab.start()
        waiting = asyncio.ensure_future(worker.wait(30))
        with plain_client(own_valkey) as plain:
            await wait_until(Raw(plain).blocked, "the worker to wait")
        own_valkey.kill()
        own_valkey.start()
        with pytest.raises(BackendUnavailable):
            await waiting
        # The same token still owns the job, although the answer to its start was lost.
        renewer = worker.lease_renewer()

        async def kept() -> bool:
            try:
                return await asyncio.to_thread(renewer.renew, [leased]) == [RenewAnswer.RENEWED]
            except BackendUnavailable:
                return False

        await wait_until(kept, "the renewer to reconnect")
        renewer.close()
        assert (await worker.settle([(leased, Done("1"))], 0)).answers == [SettleAnswer.SETTLED]
        job_id = await lab.submit()
        (after,) = await take_from(worker, "the job after the restart")
        assert after.job.id == job_id
        await worker.settle([(after, Done("1"))], 0)


@clause("J-30")
async def test_j30_a_start_whose_answer_was_lost_is_recovered(
    valkey: LocalValkey, proxy: Proxy, raw: Raw
) -> None:
    async with Connection.open(proxy.url(valkey.url)) as connection, StreamsLab(connection) as lab:
        worker = await lab.worker()
        await worker.take(1)
        job_id = await lab.submit('{"a":1}')
        proxy.cut_reply(runs("take"))
        with pytest.raises(BackendUnavailable):
            await worker.take(1)
        assert raw.field(f"job:{job_id}", "status") == "running", "it was started nevertheless"
        (adopted,) = await worker.recover_orphans(frozenset())
        assert (adopted.job.id, adopted.job.payload) == (job_id, {"a": 1})
        assert adopted.token == raw.field(f"job:{job_id}", "owner")
        assert adopted.job.deliveries == 1, "started once"
        assert [e["type"] for _, e in raw.entries(f"job:{job_id}:events")] == ["queued", "running"]
        await worker.settle([(adopted, Done("1"))], 0)


@clause("J-30", "G-26")
async def test_g26_a_run_whose_end_a_failover_lost_is_started_again(
    lab: StreamsLab, raw: Raw
) -> None:
    """The next primary has the job as running, and the worker does not know it any more. Under the
    former token the reports of the next run would count as written."""
    worker = await lab.worker()
    job_id = await lab.submit()
    (leased,) = await worker.take(1)
    report = Report("step", '{"n":1}', number=1)
    assert await worker.report([(leased, report)]) == [ReportAnswer.WRITTEN]
    (again,) = await worker.recover_orphans(frozenset())
    assert again.token != leased.token
    assert again.job.deliveries == 2
    assert await worker.report([(again, report)]) == [ReportAnswer.WRITTEN]
    assert await worker.report([(leased, report)]) == [ReportAnswer.LOST]
    await worker.settle([(again, Done("1"))], 0)
    kinds = [event["type"] for _, event in raw.entries(f"job:{job_id}:events")]
    assert kinds == ["queued", "running", "step", "running", "step", "done"]


@clause("J-30")
async def test_j30_an_entry_whose_read_reply_was_lost_is_recovered(
    valkey: LocalValkey, proxy: Proxy, raw: Raw
) -> None:
    async with Connection.open(proxy.url(valkey.url)) as connection, StreamsLab(connection) as lab:
        worker = await lab.worker()
        job_id = await lab.submit('{"a":1}')
        raw.call("SCRIPT", "FLUSH")  # so that the wait brings it and cannot start it
        proxy.cut_reply("XREADGROUP")
        with pytest.raises(BackendUnavailable):
            await worker.wait(30)
        assert raw.field(f"job:{job_id}", "status") == "queued"
        assert set(raw.pending(QUEUE).values()) == {worker.consumer}
        (adopted,) = await worker.recover_orphans(frozenset())
        assert (adopted.job.id, adopted.job.deliveries) == (job_id, 1)
        assert raw.field(f"job:{job_id}", "status") == "running"
        await worker.settle([(adopted, Done("1"))], 0)


@clause("J-30")
async def test_j30_a_pipelined_start_whose_reply_was_lost_is_recovered(
    valkey: LocalValkey, proxy: Proxy, raw: Raw
) -> None:
    async with Connection.open(proxy.url(valkey.url)) as connection, StreamsLab(connection) as lab:
        worker = await lab.worker()
        proxy.cut_reply("XREADGROUP")
        waiting = asyncio.ensure_future(worker.wait(30))
        # A cut loses bytes that the server has not read: wait until it has received the take.
        await wait_until(raw.blocked, "the worker to wait")
        await proxy.until_seen(runs("take"))
        job_id = await lab.submit('{"a":1}')
        with pytest.raises(BackendUnavailable):
            await waiting
        assert raw.field(f"job:{job_id}", "status") == "running"
        (adopted,) = await worker.recover_orphans(frozenset())
        assert (adopted.job.id, adopted.job.payload) == (job_id, {"a": 1})
        assert raw.fields(f"job:{job_id}")["owner"] == adopted.token
        assert raw.field(f"job:{job_id}", "deliveries") == "1", "it is the same start"
        await worker.settle([(adopted, Done("1"))], 0)


@clause("J-30")
async def test_j30_the_pipelined_take_starts_a_job_in_the_same_round_trip(
    valkey: LocalValkey, proxy: Proxy, raw: Raw
) -> None:
    """One round trip less: the take is queued behind the blocked read."""
    async with Connection.open(proxy.url(valkey.url)) as connection, StreamsLab(connection) as lab:
        worker = await lab.worker()
        waiting = asyncio.ensure_future(worker.wait(30, 2))
        await wait_until(raw.blocked, "the worker to wait")
        await proxy.until_seen(runs("take"))
        proxy.forget_seen()
        job_id = await lab.submit('{"a":1}')
        assert await waiting
        (leased,) = await worker.take(5)
        assert (leased.job.id, leased.job.payload, leased.job.deliveries) == (job_id, {"a": 1}, 1)
        assert proxy.seen(runs("take")) == [], "the pipelined take started it"
        assert await worker.recover_orphans({leased.token}) == []
        await worker.settle([(leased, Done("1"))], 0)
        await wait_until(lab.at_rest)


@clause("J-30")
async def test_j30_a_wait_starts_at_most_its_capacity_and_a_take_returns_the_rest(
    lab: StreamsLab, raw: Raw
) -> None:
    worker = await lab.worker()
    job_ids = [await lab.submit() for _ in range(5)]
    assert await worker.wait(30, 2)
    assert len(raw.pending(QUEUE)) == 2
    assert await worker.recover_orphans(frozenset()) == [], "they wait for their take"
    leased = await worker.take(4)
    assert [one.job.id for one in leased] == job_ids[:4]
    assert await worker.wait(30, 1)
    leased += await worker.take(1)
    assert [one.job.id for one in leased] == job_ids
    await worker.settle([(one, Done("1")) for one in leased], 0)


@clause("J-30")
async def test_j30_a_pipelined_take_does_not_start_a_running_job(
    valkey: LocalValkey, proxy: Proxy, lab: StreamsLab, raw: Raw
) -> None:
    """Both may be in flight at once: the pipelined take also sees entries pending under our
    name."""
    async with Connection.open(proxy.url(valkey.url)) as through, StreamsLab(through) as far:
        worker = await far.worker()
        with proxy.hold("XREADGROUP") as read:
            waiting = asyncio.ensure_future(worker.wait(30))
            await read.until_reached()
            job_ids = [await lab.submit()]
            leased = await worker.take(1)
            job_ids.append(await lab.submit())
        assert await waiting
        leased += await worker.take(1)
        assert [one.job.id for one in leased] == job_ids
        assert [raw.field(f"job:{one.job.id}", "owner") for one in leased] == [
            one.token for one in leased
        ]
        assert {raw.field(f"job:{job_id}", "deliveries") for job_id in job_ids} == {"1"}
        await worker.settle([(one, Done("1")) for one in leased], 0)


@clause("J-30", "R-5")
async def test_r05_a_read_sent_after_a_recovery_does_not_return_its_job_twice(
    valkey: LocalValkey, proxy: Proxy, lab: StreamsLab, raw: Raw
) -> None:
    """Regression: a read that was sent after `recover_orphans`, on another socket, started a job
    before the recovery reached the server. Both returned the job, under one token, and it ran
    twice."""
    async with Connection.open(proxy.url(valkey.url)) as through, StreamsLab(through) as far:
        worker = await far.worker()
        with proxy.hold(runs("recover_orphans")) as listing:
            adopting = asyncio.ensure_future(worker.recover_orphans(frozenset()))
            await listing.until_reached()
            waiting = asyncio.ensure_future(worker.wait(30))
            job_id = await lab.submit()
            with contextlib.suppress(
                AssertionError
            ):  # a read that waits for the recovery is correct
                await wait_until(
                    lambda: raw.field(f"job:{job_id}", "status") == "running", timeout_s=0.5
                )
        leased = await adopting
        assert await waiting
        leased += await worker.take(1)
        assert [one.job.id for one in leased] == [job_id]
        await worker.settle([(leased[0], Done("1"))], 0)


@clause("J-30", "R-5")
async def test_r05_recovery_skips_entries_of_a_read_in_flight(
    valkey: LocalValkey, proxy: Proxy, lab: StreamsLab, raw: Raw
) -> None:
    """The entry is pending and its start is pipelined behind the read: two tokens would run it
    twice."""
    async with Connection.open(proxy.url(valkey.url)) as through, StreamsLab(through) as far:
        worker = await far.worker()
        with proxy.hold(runs("take")) as behind_the_read:
            waiting = asyncio.ensure_future(worker.wait(30))
            await behind_the_read.until_reached()
            job_id = await lab.submit()
            await wait_until(lambda: raw.pending(QUEUE), "the read to fetch it")
            leased = await worker.recover_orphans(frozenset())
        assert await waiting
        leased += await worker.take(1)
        assert [one.job.id for one in leased] == [job_id]
        assert raw.field(f"job:{job_id}", "deliveries") == "1"
        await worker.settle([(leased[0], Done("1"))], 0)


@clause("J-30", "R-5")
async def test_r05_a_take_does_not_start_a_job_that_recovery_has_started(
    valkey: LocalValkey, proxy: Proxy, lab: StreamsLab, raw: Raw
) -> None:
    """A read fetches an entry and cannot start it; the recovery overtakes the take that starts it,
    since the server has lost the script of `take`, which is loaded first."""
    async with Connection.open(proxy.url(valkey.url)) as through, StreamsLab(through) as far:
        worker = await far.worker()
        await worker.take(1)  # the first one also looks for silent workers
        await worker.recover_orphans(frozenset())
        job_id = await lab.submit()
        raw.call("SCRIPT", "FLUSH")  # so that the wait brings it and cannot start it
        assert await worker.wait(30)
        raw.call("SCRIPT", "LOAD", SCRIPTS["recover_orphans"].source)
        taking = worker.take(1)
        leased = await worker.recover_orphans(frozenset())
        leased += await taking
        assert [one.job.id for one in leased] == [job_id]
        assert raw.field(f"job:{job_id}", "deliveries") == "1"
        await worker.settle([(leased[0], Done("1"))], 0)


@clause("J-30", "R-5")
async def test_r05_recovery_skips_jobs_that_a_take_will_return(lab: StreamsLab) -> None:
    """Regression: a wait had started a job, and the take that returns it also requested more. A
    recovery that was sent meanwhile returned the job as well, under the same token, and it ran
    twice."""
    worker = await lab.worker()
    job_id = await lab.submit()
    assert await worker.wait(30)
    taking = worker.take(2)
    held = await worker.recover_orphans(frozenset())
    held += await taking
    assert [one.job.id for one in held] == [job_id]
    await worker.settle([(held[0], Done("1"))], 0)


@clause("J-30", "R-5")
async def test_r05_recovery_skips_jobs_that_a_take_has_reclaimed(
    valkey: LocalValkey, proxy: Proxy, lab: StreamsLab
) -> None:
    """The same for a job that a take has reclaimed before it requests more from the queue."""
    async with Connection.open(proxy.url(valkey.url)) as through, StreamsLab(through) as far:
        dead, lost = await lab.start()
        await lab.silence(dead)
        worker = await far.worker()
        with proxy.hold(runs("take")) as behind_the_reclaim:
            taking = asyncio.ensure_future(worker.take(2))
            await behind_the_reclaim.until_reached()
            listing = asyncio.ensure_future(worker.recover_orphans(frozenset()))
            await asyncio.sleep(0)  # the recovery is sent behind the take
        held = [*await taking, *await listing]
        assert [one.job.id for one in held] == [lost.job.id]
        await worker.settle([(held[0], Done("1"))], 0)


@clause("J-30", "J-9")
async def test_j30_a_settle_whose_reply_was_lost_is_retried(
    valkey: LocalValkey, proxy: Proxy, raw: Raw
) -> None:
    async with Connection.open(proxy.url(valkey.url)) as connection, StreamsLab(connection) as lab:
        worker, leased = await lab.start()
        await lab.submit()
        proxy.cut_reply(runs("settle"))
        with pytest.raises(BackendUnavailable):
            await worker.settle([(leased, Done('"once"'))], 5)
        again = await worker.settle([(leased, Done('"once"'))], 0)
        assert again.answers == [SettleAnswer.SETTLED]
        events = [e["type"] for _, e in raw.entries(f"job:{leased.job.id}:events")]
        assert events == ["queued", "running", "done"]
        (following,) = [*await worker.recover_orphans(frozenset()), *await worker.take(1)]
        await worker.settle([(following, Done("1"))], 0)


@clause("J-30")
async def test_j30_a_second_entry_of_a_live_job_is_dropped(lab: StreamsLab, raw: Raw) -> None:
    worker, leased = await lab.start()
    raw.add(QUEUE, {"job_id": leased.job.id, "task": "echo", "payload": "{}"})
    assert await worker.take(5) == []
    assert [entry for entry, _ in raw.entries(QUEUE)] == [leased.wire], "only the one that counts"
    assert list(raw.pending(QUEUE)) == [leased.wire]
    assert (await worker.settle([(leased, Done("1"))], 0)).answers == [SettleAnswer.SETTLED]
