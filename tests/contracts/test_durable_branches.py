"""D-9a: branches of a handler, on a real server, in the worker and in a child process."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from jobwire.job.messages import Done, JobId
from jobwire.worker import Worker
from tests.contracts import branch_handlers
from tests.contracts.branch_handlers import KINDS, QUEUE
from tests.contracts.test_durable_steps import ended, kinds_of, submit
from tests.contracts.test_durable_waits import make_due, until_suspended, working
from tests.support import clause, wait_until
from tests.support.raw import Raw
from tests.support.streams import StreamsLab

pytestmark = pytest.mark.parametrize("kind", KINDS)


class Case:
    """A job of one case, beside a worker."""

    def __init__(self, lab: StreamsLab, raw: Raw, job_id: JobId, path: Path) -> None:
        self.lab, self.raw, self.job_id, self._path = lab, raw, job_id, path

    def paid(self) -> list[str]:
        return sorted(self._path.read_text().split()) if self._path.exists() else []

    def record(self) -> dict[str, str]:
        return self.raw.fields(f"job:{self.job_id}:steps")

    async def suspended(self, times: int = 1) -> dict[str, Any]:
        async def so_often() -> bool:
            return kinds_of(await self.lab.events(self.job_id)).count("suspended") >= times

        await wait_until(so_often, f"suspend {times}")
        return await until_suspended(self.raw, self.job_id)

    async def wake(self, *fields: str) -> None:
        make_due(self.raw, self.job_id, *fields)
        await self.lab.maintain("promote")

    async def result(self) -> Any:
        found = await ended(self.lab, self.job_id)
        assert not self.raw.exists("jobs:suspended", f"job:{self.job_id}:awaits")
        return found["result"] if found["code"] is None else found["code"]


@asynccontextmanager
async def running(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str, case: str
) -> AsyncGenerator[Case]:
    path = tmp_path / "paid"
    job_id = await submit(lab, kind, {"path": str(path), "case": case}, queue=QUEUE)
    async with working(lab, branch_handlers.app, QUEUE) as worker:
        assert isinstance(worker, Worker)
        yield Case(lab, raw, job_id, path)


@clause("D-9a")
@pytest.mark.parametrize("case", ["step_beside_a_sleep", "once_behind_a_sleep"])
async def test_d09a_a_step_beside_a_wait_ends_and_is_recorded(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str, case: str
) -> None:
    async with running(lab, raw, tmp_path, kind, case) as job:
        await job.suspended()
        assert sorted(job.record()) == ["s:a", "t:sleep"]
        await job.wake("t:sleep")
        assert await job.result() == "a"
        assert job.paid() == ["a"]


@clause("D-9a")
async def test_d09a_a_branch_goes_on_beside_one_that_waits(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str
) -> None:
    async with running(lab, raw, tmp_path, kind, "steps_go_on") as job:
        await job.suspended()
        assert sorted(job.record()) == ["s:a", "s:b", "s:c", "t:sleep"]
        await job.wake("t:sleep")
        assert await job.result() == ["a", "b", "c"]
        assert job.paid() == ["a", "b", "c"]


@clause("D-9a")
async def test_d09a_branches_with_children_pay_once_each(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str
) -> None:
    async with running(lab, raw, tmp_path, kind, "fetches") as job:
        assert await job.result() == ["a", "b", "c", "d"]
        assert job.paid() == ["a", "b", "c", "d"]


@clause("D-9a", "D-11")
async def test_d09a_waits_of_branches_are_waited_for_together(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str
) -> None:
    async with running(lab, raw, tmp_path, kind, "three_sleeps") as job:
        waits_for = await job.suspended()
        fields = ["t:s0", "t:s1", "t:s2"]
        due = [int(job.record()[field]) for field in fields]
        assert due[2] - due[1] == due[1] - due[0] == 1000, "all of them have begun"
        assert waits_for == {"for": "sleep", "name": "s0", "until": due[0], "more": 2}
        await job.wake("t:s0")
        assert (await job.suspended(2))["until"] == due[1]
        await job.wake("t:s1", "t:s2")
        assert await job.result() == "slept"


@clause("D-9a", "D-12")
async def test_d09a_a_branch_goes_on_when_its_own_signal_has_come(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str
) -> None:
    async with running(lab, raw, tmp_path, kind, "two_signals") as job:
        await job.suspended()
        await lab.queue.signal(job.job_id, "b", "2")
        waits_for = await job.suspended(2)
        assert (waits_for["name"], "more" in waits_for) == ("a", False)
        assert job.paid() == ["b2"]
        # The other branch has timed out before it: its signal may still come.
        await lab.queue.signal(job.job_id, "a", "1")
        assert await job.result() == ["a1", "b2"]
        assert job.paid() == ["a1", "b2"]


@clause("D-9a", "D-12")
async def test_d09a_the_end_of_one_wait_is_not_that_of_another(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str
) -> None:
    """What is due is the sleep: the signal of the other branch has time left."""
    async with running(lab, raw, tmp_path, kind, "two_signals") as job:
        await job.suspended()
        await job.wake("t:signal:a")
        code = await job.result()
        assert code == "signal_timeout"
        assert "g:b" not in job.record()


@clause("D-9a", "D-15")
async def test_d09a_a_gather_is_one_wait_beside_others(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str
) -> None:
    child = await lab.worker("elsewhere", queues=["elsewhere"])
    async with running(lab, raw, tmp_path, kind, "children_beside_a_signal") as job:
        await job.suspended()
        first, second = await child.take(2)
        await child.settle([(first, Done("1"))], 0)
        assert raw.members("jobs:suspended") == [job.job_id], "one of two children"
        await lab.queue.signal(job.job_id, "a", '"!"')
        await job.suspended(2)
        assert job.paid() == ["a!"]
        await child.settle([(second, Done("2"))], 0)
        assert sorted((await job.result())[0]) == [1, 2]
        assert job.paid() == ["a!", "all"]


@clause("D-9a")
async def test_d09a_a_step_that_waits_itself_is_not_waited_for(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str
) -> None:
    async with running(lab, raw, tmp_path, kind, "step_that_waits") as job:
        await job.suspended()
        await job.wake("t:sleep")
        assert await job.result() == "inner"
        assert job.paid() == ["inner"]


@clause("D-9a", "D-9")
async def test_d09a_tasks_that_nobody_awaits_end_with_their_run(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str
) -> None:
    async with running(lab, raw, tmp_path, kind, "nobody_awaits") as job:
        await job.suspended()
        assert job.paid() == ["ended"], "before the job waits"
        await job.wake("t:sleep")
        assert await job.result() == 1


@clause("D-9a")
async def test_d09a_a_wait_that_its_branch_gives_up_suspends_nothing(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str
) -> None:
    async with running(lab, raw, tmp_path, kind, "given_up") as job:
        assert await job.result() == ["a", "given up"]
        assert job.paid() == ["a"]
        assert sorted(job.record()) == ["s:a"]


@clause("D-9a", "D-11")
async def test_d09a_a_short_sleep_beside_a_wait_holds_no_worker(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str
) -> None:
    async with running(lab, raw, tmp_path, kind, "short_sleeps_beside") as job:
        waits_for = await job.suspended()
        assert waits_for["until"] <= int(job.record()["t:short"]) <= raw.now_ms() + 4900
        await job.wake("t:short")
        await job.suspended(2)
        assert job.paid() == ["a", "b"]
        await lab.queue.signal(job.job_id, "go", "1")
        assert await job.result() == [1, "b"]
        assert json.loads(job.record()["s:b"])[2] == "b"
