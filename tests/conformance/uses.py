"""Features that only some wires have. An engine that declares one must implement it.

A wire's test file derives a class, as from `LifeOfAJob`; tests of undeclared features are skipped.
"""

from __future__ import annotations

import time

import msgspec
import pytest

from jobwire.job.engine import Engine, Use
from jobwire.job.ids import new_job_id
from jobwire.job.messages import (
    CHILD_KIND,
    DATA_KIND,
    ChildRequest,
    Done,
    Postponed,
    RateLimited,
    Report,
    ReportAnswer,
    RetryLater,
    SettleAnswer,
    WaitsForChildren,
)
from jobwire.job.states import State
from tests.conformance.lab import TASK, Lab
from tests.conformance.lifecycle import TRANSIENT, state, submit, take_one


def needs(engine: Engine, use: Use) -> None:
    if use not in engine.traits.uses:
        pytest.skip(f"the wire {engine.wire} has no {use}")


class UsesOfSomeWires:
    async def test_a_postponed_job_counts_nothing_and_runs_again_when_due(self, lab: Lab) -> None:
        worker = await lab.worker()
        needs(worker, "postpone")
        (job_id,) = await submit(lab)
        leased = await take_one(worker)
        until_ms = round(time.time() * 1000) + 200
        settled = await worker.settle([(leased, Postponed(until_ms))], 5)
        assert settled == ([SettleAnswer.SETTLED], [])
        assert await state(lab, job_id) is State.WAITING
        again = await take_one(worker)
        assert time.time() * 1000 >= until_ms - 1
        assert (again.job.id, again.job.attempt) == (job_id, 1)
        await worker.settle([(again, Done("1"))], 0)

    async def test_a_rate_limited_queue_starts_nothing_for_a_while(self, lab: Lab) -> None:
        worker = await lab.worker()
        needs(worker, "rate_limit")
        first, second = await submit(lab, 2)
        leased = await take_one(worker)
        limited_s = time.monotonic() + 0.3
        settled = await worker.settle([(leased, RateLimited(0.3))], 5)
        assert settled == ([SettleAnswer.SETTLED], []), "the second job waits, too"
        again = [await take_one(worker), await take_one(worker)]
        assert time.monotonic() >= limited_s
        assert [one.job.id for one in again] == [first, second]
        assert again[0].job.attempt == 1
        await worker.settle([(one, Done("1")) for one in again], 0)

    async def test_a_job_waits_for_its_children(self, lab: Lab) -> None:
        worker = await lab.worker()
        needs(worker, "children")
        (parent,) = await submit(lab)
        leased = await take_one(worker)
        child = ChildRequest(worker.name, TASK, '{"child":true}', new_job_id())
        report = Report(CHILD_KIND, msgspec.json.encode(child).decode(), number=1)
        reported = worker.report([(leased, report)])
        settled = await worker.settle([(leased, WaitsForChildren())], 0)
        assert (await reported, settled.answers) == (
            [ReportAnswer.WRITTEN],
            [SettleAnswer.SETTLED],
        )
        first = await take_one(worker)
        assert (first.job.id, first.job.payload) == (child.job_id, {"child": True})
        assert await worker.take(1) == [], "the parent waits"
        await worker.settle([(first, Done("1"))], 0)
        again = await take_one(worker)
        assert (again.job.id, again.job.attempt) == (parent, 1)
        # No child is pending now: it runs again at once.
        await worker.settle([(again, WaitsForChildren())], 0)
        last = await take_one(worker)
        assert last.job.id == parent
        await worker.settle([(last, Done("1"))], 0)

    async def test_a_handler_may_replace_its_payload(self, lab: Lab) -> None:
        worker = await lab.worker()
        needs(worker, "update_data")
        await submit(lab)
        leased = await take_one(worker)
        await worker.report([(leased, Report(DATA_KIND, '{"step":2}', number=1))])
        await worker.settle([(leased, RetryLater(0, TRANSIENT))], 0)
        again = await take_one(worker)
        assert again.job.payload == {"step": 2}
        await worker.settle([(again, Done("1"))], 0)
