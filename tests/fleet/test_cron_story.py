"""Cron in a fleet whose workers die (J-52)."""

from __future__ import annotations

from collections import Counter
from typing import cast

from jobwire.wires.streams.contract import Keys
from tests.fleet.running import Fleet
from tests.support import Plain, clause, wait_until_sync
from tests.support.servers import plain_client

APP = "tests.fleet.cron_app:app"


def _due_times(plain: Plain) -> list[int]:
    """The due times of all jobs there are, one for each job."""
    keys = Keys()
    ids = cast("list[str]", plain.zrange(keys.index(), 0, -1))
    runs = [cast("str", plain.hget(keys.job(job_id), "idempotency_key")) for job_id in ids]
    return [int(run.removeprefix("cron:tick:")) for run in runs]


@clause("J-52")
def test_j52_two_workers_one_killed_and_each_due_time_has_one_run(own_fleet: Fleet) -> None:
    """Both workers see every due time; one of them is killed; then both are gone for a while."""
    victim, other = (
        own_fleet.start_worker(APP, JOBWIRE_WORKER_LEASE="2s"),
        own_fleet.start_worker(APP, JOBWIRE_WORKER_LEASE="2s"),
    )
    with plain_client(own_fleet.valkey, "story") as plain:
        wait_until_sync(lambda: len(_due_times(plain)) >= 3)
        victim.kill()
        killed_at = max(_due_times(plain))
        wait_until_sync(lambda: max(_due_times(plain)) >= killed_at + 3000, "the other to go on")
        other.kill()
        before = set(_due_times(plain))
        # Nobody is there for some due times; of those, whoever comes makes up for one at most.
        wait_until_sync(lambda: plain.time()[0] * 1000 >= max(before) + 4000)
        own_fleet.start_worker(APP, JOBWIRE_WORKER_LEASE="2s")
        wait_until_sync(lambda: len(_due_times(plain)) >= len(before) + 3)

        counted = Counter(_due_times(plain))
        assert [due for due, count in counted.items() if count > 1] == []
        after = sorted(set(counted) - before)
        assert after[0] >= max(before) + 4000, "what was missed longer ago stays missed"

        keys = Keys()
        ids = cast("list[str]", plain.zrange(keys.index(), 0, -1))
        wait_until_sync(
            lambda: {plain.hget(keys.job(job_id), "status") for job_id in ids} == {"done"},
            "every run to end, those of the killed included",
            timeout_s=60,
        )
