"""J-56, J-37: a handler that blocks its worker's event loop, and that worker's registration."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

from jobwire.job.messages import TaskDefinition
from jobwire.local import LocalValkey
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection
from tests.stories.site import Site
from tests.support import clause, wait_until

GRACE_S = 1.0
HEARTBEAT_S = 3.0
"""A registration lives for three: longer than a worker stands still on a busy machine."""


@clause("J-56", "R-1")
async def test_j56_a_loop_that_is_blocked_for_too_long_ends_the_process(
    valkey: LocalValkey, tmp_path: Path
) -> None:
    """The worker's other jobs, which have no timeout, are held for no longer than that."""
    async with Site(valkey.url, tmp_path, lease_s=1.0) as site:
        victim = await site.ready(JOBWIRE_WORKER_MAX_BLOCK="5s")
        other = await site.submit("gate")
        await wait_until(lambda: site.begun(other) == 1)
        job = await site.submit("blocks")
        assert victim.wait() == 70
        assert "the process ends" in victim.output
        assert await site.status(other) == "queued", victim.output
        assert "time.sleep(0.01)" in victim.output, "the line that blocks"
        site.gate.touch()
        async with site.survivor():
            await site.until_all([job, other], "done")
        for each in (job, other):
            assert site.begun(each) == 2
            await site.check_ended_once(each)
        await site.check_at_rest()


@clause("J-56", "R-1")
async def test_j56_a_job_that_blocks_the_loop_past_its_timeout_ends_as_timeout(
    valkey: LocalValkey, tmp_path: Path
) -> None:
    """It took down one worker after the other. What the blocked worker holds besides: a job that
    waits, one in a thread, and one that ended in the same turn of the loop, whose outcome is not
    written yet."""
    async with Site(valkey.url, tmp_path, lease_s=3.0) as site:
        waiting, thread, ended, blocking = [
            await site.submit(task, timeout_s=timeout_s)
            for task, timeout_s in (
                ("gate", None),
                ("thread", None),
                ("quick", None),
                ("blocks", 1.0),
            )
        ]
        victim = await site.ready()
        assert victim.wait() == 70
        assert "time.sleep(0.01)" in victim.output, "the line that blocks"
        fields = await site.fields(blocking)
        error = json.loads(fields["error"])
        assert (fields["status"], error["code"]) == ("error", "timeout")
        assert "time.sleep(0.01)" in fields["traceback"]
        assert (await site.fields(ended))["result"] == str(victim.pid)
        for each in (waiting, thread):
            fields = await site.fields(each)
            assert (fields["status"], fields["deliveries"]) == ("queued", "0"), fields
        site.gate.touch()
        async with site.survivor():
            await site.until_all([waiting, thread], "done")
        assert [site.begun(each) for each in (blocking, ended)] == [1, 1]
        for each in (waiting, thread, ended):
            await site.check_ended_once(each)
        await site.check_ended_once(blocking, "error")
        await site.check_at_rest()


@clause("J-56")
async def test_j56_a_suspended_process_is_not_ended_as_blocked(
    valkey: LocalValkey, tmp_path: Path
) -> None:
    """The renewal thread, which checks the loop's heartbeat, was frozen as well."""
    async with Site(valkey.url, tmp_path, lease_s=1.0) as site:
        victim = await site.ready(JOBWIRE_WORKER_MAX_BLOCK="6s")
        victim.freeze()
        await asyncio.sleep(9)  # longer than the limit
        victim.thaw()
        job = await site.submit("quick")
        await site.until(job, "done")
        assert (await site.fields(job))["result"] == str(victim.pid)
        assert victim.exit_code is None


@clause("J-37")
async def test_j37_a_worker_whose_loop_is_blocked_stays_registered(
    valkey: LocalValkey, tmp_path: Path
) -> None:
    """Regression: its registration expired, and the jobs that waited for it ended as `unknown_task`
    at a worker that has other tasks."""
    settings = {
        "JOBWIRE_JOBS_HEARTBEAT_S": str(HEARTBEAT_S),
        "JOBWIRE_JOBS_UNKNOWN_TASK_GRACE_S": str(GRACE_S),
    }
    async with Site(valkey.url, tmp_path, lease_s=3600) as site:
        victim = await site.ready(None, **settings)
        blocking = await site.submit("blocks")
        await wait_until(lambda: site.begun(blocking) == 1)
        blocked_s = time.monotonic()
        async with Connection.open(valkey.url) as connection:
            engine = StreamsEngine(
                connection,
                StreamsSettings(lease_s=3600, end_unknown_tasks=True, unknown_task_grace_s=GRACE_S),
            )
            await engine.register([TaskDefinition("something else")], slots=1)
            promote = next(task for task in engine.maintenance() if task.name == "promote")
            job = await site.submit("quick")

            async def long_unknown() -> bool:
                await promote.run()
                await engine.take(1)
                fields = await site.fields(job)
                waited_ms = int(fields["updated_ts"]) and int(fields.get("unknown_ts", "0"))
                assert fields["status"] == "queued", fields
                return bool(waited_ms) and time.monotonic() - blocked_s > 4 * HEARTBEAT_S

            await wait_until(long_unknown, "a registration and the grace to be over")
            assert site.begun(blocking) == 1
            site.gate.touch()

            async def promoted() -> bool:
                await promote.run()
                return await site.status(job) == "done"

            await wait_until(promoted)
            await engine.deregister()
        assert (await site.fields(job))["result"] == str(victim.pid)
