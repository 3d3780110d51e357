"""The lifecycle of a job, which every engine must follow. A wire's test file derives a class:

    class TestStreams(LifeOfAJob):
        @pytest_asyncio.fixture
        async def lab(self, …): …

Nothing here knows a wire: the tests call the Engine protocol, and the lab for wire details.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from jobwire.job.engine import Engine
from jobwire.job.ids import new_job_id
from jobwire.job.messages import (
    Canceled,
    CancelOutcome,
    Done,
    Failed,
    JobError,
    JobId,
    JobRequest,
    LeasedJob,
    Released,
    RenewAnswer,
    Report,
    ReportAnswer,
    RetryLater,
    SettleAnswer,
    Submitted,
)
from jobwire.job.states import State
from tests.conformance.lab import TASK, Lab
from tests.support import wait_until

TRANSIENT = JobError("handler_error", "try me again", retryable=True)
FINAL = JobError("no_such_city", "there is no city of that name")


async def submit(lab: Lab, count: int = 1, **request: object) -> list[JobId]:
    requests = [
        JobRequest(TASK, f'{{"n":{n}}}', **request)  # pyright: ignore[reportArgumentType] - by name
        for n in range(count)
    ]
    answers = await lab.queue.submit_many(requests)
    return [answer.job_id for answer in answers if isinstance(answer, Submitted)]


async def take_one(engine: Engine) -> LeasedJob:
    """Take as a worker does: wait, then take, until there is one."""

    async def one() -> Sequence[LeasedJob]:
        await engine.wait(0.05)
        return await engine.take(1)

    return (await wait_until(one, "a job to take"))[0]


async def state(lab: Lab, job_id: str) -> State:
    snapshot = await lab.snapshot(job_id)
    return snapshot.state


async def aclose(iterator: AsyncIterator[object]) -> None:
    """Close a generator that is not iterated to its end."""
    assert isinstance(iterator, AsyncGenerator)
    await iterator.aclose()


class LifeOfAJob:
    # ── success ────────────────────────────────────────────────────────────────────────────

    async def test_submitted_taken_settled(self, lab: Lab) -> None:
        worker = await lab.worker()
        (job_id,) = await submit(lab)
        assert await state(lab, job_id) is State.WAITING

        leased = await take_one(worker)
        assert (leased.job.id, leased.job.task, leased.job.payload) == (job_id, TASK, {"n": 0})
        assert (leased.job.attempt, leased.job.deliveries, leased.preset_outcome) == (1, 1, None)
        assert await state(lab, job_id) is State.RUNNING

        settled = await worker.settle([(leased, Done('{"ok":true}'))], 0)
        assert settled == ([SettleAnswer.SETTLED], [])
        snapshot = await lab.snapshot(job_id)
        assert (snapshot.state, snapshot.result_json) == (State.DONE, '{"ok":true}')
        assert await lab.at_rest()

    async def test_jobs_are_taken_in_the_order_of_submission(self, lab: Lab) -> None:
        worker = await lab.worker()
        job_ids = await submit(lab, 20)
        leased = await worker.take(20)
        assert [one.job.id for one in leased] == job_ids
        await worker.settle([(one, Done("null")) for one in leased], 0)

    async def test_take_never_waits_and_never_exceeds_its_limit(self, lab: Lab) -> None:
        worker = await lab.worker()
        assert await worker.take(5) == []
        await submit(lab, 7)
        leased = await worker.take(5)
        assert len(leased) == 5
        settled = await worker.settle([(one, Done("null")) for one in leased], 5)
        assert len(settled.leased) == 2
        await worker.settle([(one, Done("null")) for one in settled.leased], 0)

    async def test_each_job_is_leased_to_one_worker(self, lab: Lab) -> None:
        workers = [await lab.worker() for _ in range(3)]
        job_ids = await submit(lab, 60)

        async def work(engine: Engine) -> list[str]:
            done: list[str] = []
            leased = await engine.take(4)
            while leased:
                done += [one.job.id for one in leased]
                leased = (await engine.settle([(one, Done("null")) for one in leased], 4)).leased
            return done

        done = await asyncio.gather(*(work(worker) for worker in workers))
        assert sorted(one for part in done for one in part) == sorted(job_ids)

    async def test_the_lease_renewer_settles_for_a_blocked_loop(self, lab: Lab) -> None:
        """By its own socket, each outcome as the engine writes it; repeatable (J-56)."""
        worker = await lab.worker()
        job_ids = await submit(lab, 4, max_attempts=2)
        leased = await worker.take(4)
        outcomes = [Done("1"), Failed(FINAL), RetryLater(0.001, TRANSIENT), Released()]
        renewer = worker.lease_renewer()
        try:
            for _ in range(2):
                renewer.settle(list(zip(leased, outcomes, strict=True)))
        finally:
            renewer.close()
        states = [await state(lab, job_id) for job_id in job_ids]
        assert states == [State.DONE, State.FAILED, State.WAITING, State.WAITING]
        found: dict[str, LeasedJob] = {}

        async def both_taken() -> bool:
            await lab.sweep()
            found.update({one.job.id: one for one in await worker.take(2)})
            return len(found) == 2

        await wait_until(both_taken, "the retry to be due")
        retried, released = (found[job_id] for job_id in job_ids[2:])
        assert (retried.job.attempt, released.job.attempt) == (2, 1)
        assert released.job.deliveries == (1 if worker.traits.releases_uncounted else 2)
        await worker.settle([(one, Done("null")) for one in (retried, released)], 0)

    async def test_requests_are_sent_when_called(self, lab: Lab) -> None:
        """A report and the settle that follows it need no await in between."""
        worker = await lab.worker()
        (job_id,) = await submit(lab)
        leased = await take_one(worker)
        reported = worker.report([(leased, Report("log", '{"line":1}', number=1))])
        settled = worker.settle([(leased, Done("null"))], 0)
        assert (await settled).answers == [SettleAnswer.SETTLED]
        assert await reported == [ReportAnswer.WRITTEN]
        assert await lab.reports(job_id) == ["log"]

    async def test_the_same_request_with_a_job_id_makes_one_job(self, lab: Lab) -> None:
        worker = await lab.worker()
        request = JobRequest(TASK, "{}", job_id=new_job_id())
        await lab.queue.submit(request)
        await lab.queue.submit(request)
        leased = await worker.take(5)
        assert [one.job.id for one in leased] == [request.job_id]
        await worker.settle([(leased[0], Done("null"))], 0)

    # ── other outcomes────────────────────────────────────────────────────────────────────────

    async def test_a_failure_ends_the_job(self, lab: Lab) -> None:
        worker = await lab.worker()
        (job_id,) = await submit(lab)
        leased = await take_one(worker)
        assert (await worker.settle([(leased, Failed(FINAL))], 0)).answers == [SettleAnswer.SETTLED]
        snapshot = await lab.snapshot(job_id)
        assert snapshot.state is State.FAILED
        assert FINAL.message in snapshot.error_json

    async def test_a_retry_counts_and_runs_again_when_due(self, lab: Lab) -> None:
        worker = await lab.worker()
        (job_id,) = await submit(lab)
        leased = await take_one(worker)
        assert (await worker.settle([(leased, RetryLater(0.2, TRANSIENT))], 5)).leased == []
        assert await state(lab, job_id) is State.WAITING

        async def back() -> Sequence[LeasedJob]:
            await lab.sweep()
            return await worker.take(1)

        again = (await wait_until(back, "the job to be queued again"))[0]
        assert (again.job.id, again.job.attempt, again.job.deliveries) == (job_id, 2, 2)
        assert again.token != leased.token
        await worker.settle([(again, Done("null"))], 0)

    async def test_a_released_job_is_available_at_once_and_counts_nothing(self, lab: Lab) -> None:
        first, second = await lab.worker(), await lab.worker()
        (job_id,) = await submit(lab)
        leased = await take_one(first)
        await first.settle([(leased, Released())], 0)
        assert await state(lab, job_id) is State.WAITING
        again = await take_one(second)
        starts = 1 if second.traits.releases_uncounted else 2
        assert (again.job.id, again.job.attempt, again.job.deliveries) == (job_id, 1, starts)
        await second.settle([(again, Done("null"))], 0)

    async def test_a_canceled_job_ends_as_canceled(self, lab: Lab) -> None:
        worker = await lab.worker()
        (job_id,) = await submit(lab)
        leased = await take_one(worker)
        await worker.settle([(leased, Canceled())], 0)
        assert await state(lab, job_id) is worker.traits.canceled_state

    async def test_outcomes_of_all_kinds_are_settled_in_one_batch(self, lab: Lab) -> None:
        worker = await lab.worker()
        job_ids = await submit(lab, 5)
        leased = await worker.take(5)
        outcomes = (Done("1"), Failed(FINAL), RetryLater(0, TRANSIENT), Released(), Canceled())
        settled = await worker.settle(list(zip(leased, outcomes, strict=True)), 0)
        assert settled.answers == [SettleAnswer.SETTLED] * 5
        assert [await state(lab, job_id) for job_id in job_ids] == [
            State.DONE,
            State.FAILED,
            State.WAITING,
            State.WAITING,
            worker.traits.canceled_state,
        ]

    # ── cancelling ───────────────────────────────────────────────────────────────────────────

    async def test_a_waiting_job_is_canceled_at_once_and_never_runs(self, lab: Lab) -> None:
        worker = await lab.worker()
        (job_id,) = await submit(lab)
        assert await lab.queue.cancel(job_id) is CancelOutcome.CANCELED
        if worker.traits.keeps_canceled:
            assert await state(lab, job_id) is State.CANCELED
        else:
            assert await lab.queue.cancel(job_id) is CancelOutcome.GONE
        assert await worker.take(5) == []
        assert await lab.at_rest()

    async def test_a_delayed_job_is_canceled_at_once_and_never_runs(self, lab: Lab) -> None:
        worker = await lab.worker()
        (job_id,) = await submit(lab, delay_s=0.05)
        assert await lab.queue.cancel(job_id) is CancelOutcome.CANCELED
        await asyncio.sleep(0.06)  # past its due time on either clock
        await lab.sweep()
        assert await worker.take(5) == []
        assert await lab.at_rest()

    async def test_the_worker_of_a_running_job_gets_the_cancel(self, lab: Lab) -> None:
        worker = await lab.worker()
        (job_id,) = await submit(lab)
        leased = await take_one(worker)
        cancels = worker.cancels()
        heard = asyncio.ensure_future(anext(cancels))

        async def received() -> bool:
            # A cancel request is not kept for later subscribers: repeat until one is subscribed.
            assert await lab.queue.cancel(job_id) is CancelOutcome.REQUESTED
            await asyncio.wait([heard], timeout=0.05)
            return heard.done()

        await wait_until(received, "the cancel request to arrive")
        assert heard.result().token == leased.token
        await aclose(cancels)
        renewer = worker.lease_renewer()
        assert await asyncio.to_thread(renewer.renew, [leased]) == [RenewAnswer.CANCEL]
        renewer.close()
        assert await state(lab, job_id) is State.RUNNING
        await worker.settle([(leased, Canceled())], 0)
        assert await lab.queue.cancel(job_id) is CancelOutcome.FINISHED

    async def test_a_job_to_be_canceled_is_not_retried(self, lab: Lab) -> None:
        worker = await lab.worker()
        job_ids = await submit(lab, 2)
        first, second = await worker.take(2)
        for job_id in job_ids:
            await lab.queue.cancel(job_id)
        await worker.settle([(first, RetryLater(0, TRANSIENT)), (second, Released())], 0)
        if not worker.traits.cancels_at_release:
            again = [await take_one(worker), await take_one(worker)]
            outcomes = [(one, one.preset_outcome) for one in again if one.preset_outcome]
            assert len(outcomes) == 2, "neither may run"
            await worker.settle(outcomes, 0)
        ended = worker.traits.canceled_state
        assert [await state(lab, job_id) for job_id in job_ids] == [ended] * 2
        assert await worker.take(5) == []

    async def test_an_unknown_job_cannot_be_canceled(self, lab: Lab) -> None:
        assert await lab.queue.cancel(new_job_id()) is CancelOutcome.GONE

    # ── lost leases ──────────────────────────────────────────────────────────────────────────

    async def test_a_dead_workers_job_is_reclaimed_and_its_zombie_changes_nothing(
        self, lab: Lab
    ) -> None:
        silent, living = await lab.worker(), await lab.worker()
        (job_id,) = await submit(lab)
        leased = await take_one(silent)
        await lab.silence(silent)

        async def taken_over() -> Sequence[LeasedJob]:
            await lab.sweep()
            return await living.take(1)

        again = (await wait_until(taken_over, "the job to be reclaimed"))[0]
        assert (again.job.id, again.job.attempt, again.job.deliveries) == (job_id, 1, 2)

        renewer = silent.lease_renewer()
        assert await asyncio.to_thread(renewer.renew, [leased]) == [RenewAnswer.LOST]
        renewer.close()
        assert await silent.report([(leased, Report("log", "1"))]) == [ReportAnswer.LOST]
        for outcome in (Done('"zombie"'), Failed(FINAL), RetryLater(0, TRANSIENT), Released()):
            settled = await silent.settle([(leased, outcome)], 0)
            assert settled.answers == [SettleAnswer.LOST]
        assert await state(lab, job_id) is State.RUNNING

        await living.settle([(again, Done('"living"'))], 0)
        late = SettleAnswer.ALREADY if silent.traits.tells_ended else SettleAnswer.LOST
        assert (await silent.settle([(leased, Done('"zombie"'))], 0)).answers == [late]
        snapshot = await lab.snapshot(job_id)
        assert snapshot.result_json == '"living"'
        assert await lab.reports(job_id) == []

    async def test_a_renewed_lease_is_not_reclaimed(self, lab: Lab) -> None:
        worker, other = await lab.worker(), await lab.worker()
        await submit(lab)
        leased = await take_one(worker)
        renewer = worker.lease_renewer()
        for _ in range(3):
            if worker.traits.renews_expired:
                await lab.silence(
                    worker
                )  # its lease has expired, and no other worker has checked it
            assert await asyncio.to_thread(renewer.renew, [leased]) == [RenewAnswer.RENEWED]
            await lab.sweep()
            assert await other.take(1) == []
        if not worker.traits.renews_expired:
            await lab.silence(worker)
            assert await asyncio.to_thread(renewer.renew, [leased]) == [RenewAnswer.LOST]
            renewer.close()
            return
        renewer.close()
        assert (await worker.settle([(leased, Done("1"))], 0)).answers == [SettleAnswer.SETTLED]

    async def test_a_lost_job_affects_no_other_of_its_batch(self, lab: Lab) -> None:
        worker = await lab.worker()
        job_ids = await submit(lab, 3)
        leased = await worker.take(3)
        await worker.settle([(leased[1], Released())], 0)
        again = await take_one(worker)
        settled = await worker.settle([(one, Done("1")) for one in leased], 0)
        assert settled.answers == [
            SettleAnswer.SETTLED,
            SettleAnswer.LOST,
            SettleAnswer.SETTLED,
        ]
        assert await state(lab, job_ids[1]) is State.RUNNING
        await worker.settle([(again, Done("1"))], 0)

    # ── lost answers ─────────────────────────────────────────────────────────────────────────

    async def test_a_repeated_settle_gets_the_same_answer(self, lab: Lab) -> None:
        worker = await lab.worker()
        job_ids = await submit(lab, 4)
        leased = await worker.take(4)
        outcomes = (Done("1"), Failed(FINAL), RetryLater(60, TRANSIENT), Canceled())
        batch = list(zip(leased, outcomes, strict=True))
        first = await worker.settle(batch, 0)
        assert await worker.settle(batch, 0) == first
        assert await worker.settle(batch, 0) == first
        snapshot = await lab.snapshot(job_ids[2])
        assert snapshot.attempt == 2, "one failure is counted once, however often it is settled"

    async def test_a_repeated_report_is_written_once(self, lab: Lab) -> None:
        worker = await lab.worker()
        (job_id,) = await submit(lab)
        leased = await take_one(worker)
        batch = [(leased, Report("log", f'{{"n":{n}}}', number=n)) for n in (1, 2, 3)]
        assert await worker.report(batch[:2]) == [ReportAnswer.WRITTEN] * 2
        assert await worker.report(batch) == [ReportAnswer.WRITTEN] * 3
        written = 3 if worker.traits.reports_once else 5
        assert await lab.reports(job_id) == ["log"] * written
        await worker.settle([(leased, Done("1"))], 0)

    async def test_a_job_whose_start_answer_was_lost_is_recovered(self, lab: Lab) -> None:
        worker = await lab.worker()
        job_ids = await submit(lab, 3)
        known = await worker.take(1)
        await worker.take(2)  # the answer is lost on the way
        adopted = await worker.recover_orphans({one.token for one in known})
        assert [one.job.id for one in adopted] == job_ids[1:]
        assert {one.job.deliveries for one in adopted} == {1}, "started once"
        batch = [(one, Done("1")) for one in (*known, *adopted)]
        assert (await worker.settle(batch, 0)).answers == [SettleAnswer.SETTLED] * 3
        assert await worker.recover_orphans(frozenset()) == []

    async def test_starts_in_flight_are_not_recovered(self, lab: Lab) -> None:
        worker = await lab.worker()
        await submit(lab, 2)
        under_way = worker.take(2)
        assert await worker.recover_orphans(frozenset()) == []
        leased = await under_way
        assert len(leased) == 2
        await worker.settle([(one, Done("1")) for one in leased], 0)

    # ── waiting, deregistering────────────────────────────────────────────────────────────────

    async def test_a_waiting_worker_wakes_when_a_job_arrives(self, lab: Lab) -> None:
        worker = await lab.worker()
        waiting = asyncio.ensure_future(worker.wait(30))
        (job_id,) = await submit(lab)
        assert await waiting
        leased = await worker.take(1)
        assert [one.job.id for one in leased] == [job_id]
        await worker.settle([(leased[0], Done("1"))], 0)

    async def test_a_wait_without_capacity_leaves_the_job_to_others(self, lab: Lab) -> None:
        full, other = await lab.worker(), await lab.worker()
        waiting = asyncio.ensure_future(full.wait(30, 0))
        (job_id,) = await submit(lab)
        assert await waiting
        assert await full.wait(30, 0), "the job is still there"
        leased = await other.take(1)
        assert [one.job.id for one in leased] == [job_id]
        await other.settle([(leased[0], Done("1"))], 0)
        assert await full.take(1) == []

    async def test_a_wait_without_capacity_ends_at_its_timeout_and_by_wake(self, lab: Lab) -> None:
        worker = await lab.worker()
        assert not await worker.wait(0.02, 0)
        waiting = asyncio.ensure_future(worker.wait(30, 0))
        await asyncio.sleep(0)
        await worker.wake()
        assert not await waiting

    async def test_a_wait_without_work_ends_at_its_timeout(self, lab: Lab) -> None:
        worker = await lab.worker()
        assert not await worker.wait(0.02)

    async def test_a_wait_can_be_ended(self, lab: Lab) -> None:
        worker = await lab.worker()
        waiting = asyncio.ensure_future(worker.wait(30))
        await asyncio.sleep(0)
        await worker.wake()
        assert not await waiting
        await worker.wake()
        assert not await worker.wait(30), "one that was about to begin ends, too"

    async def test_a_deregistered_worker_leaves_nothing_behind(self, lab: Lab) -> None:
        leaving, other = await lab.worker(), await lab.worker()
        job_ids = await submit(lab, 4)
        assert await leaving.wait(30)  # fetched, perhaps, and never taken
        await leaving.deregister()
        leased = await other.take(5)
        assert sorted(one.job.id for one in leased) == sorted(job_ids)
        assert {one.job.deliveries for one in leased} == {1}
        await other.settle([(one, Done("1")) for one in leased], 0)
        assert await lab.at_rest()

    async def test_deregister_releases_jobs_whose_start_answer_was_lost(self, lab: Lab) -> None:
        leaving, other = await lab.worker(), await lab.worker()
        (job_id,) = await submit(lab)
        await leaving.take(1)  # the answer is lost on the way
        await leaving.deregister()
        leased = await other.take(5)
        starts = 1 if leaving.traits.releases_uncounted else 2
        assert [(one.job.id, one.job.deliveries) for one in leased] == [(job_id, starts)]
        await other.settle([(leased[0], Done("1"))], 0)
