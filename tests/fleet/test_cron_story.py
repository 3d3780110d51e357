"""Cron in a fleet whose workers die (J-52)."""

from __future__ import annotations

from collections import Counter
from typing import Final, cast

from jobwire.systems.jobs.contract import StreamsKeys, cron_run_name
from tests.fleet.runner import Fleet
from tests.support import Plain, Program, Proxy, clause, wait_until_sync
from tests.support.resp import Command
from tests.support.servers import plain_client

APP: Final = "tests.fleet.cron_app:app"
KEYS: Final = StreamsKeys()
RUN: Final = cron_run_name("tick", 0).removesuffix("0")
GONE_MS: Final = 4000


def _due_times(plain: Plain) -> list[int]:
    """The due times of all jobs there are, one for each job."""
    ids = cast("list[str]", plain.zrange(KEYS.index(), 0, -1))
    runs = [cast("str", plain.hget(KEYS.job(job_id), "idempotency_key")) for job_id in ids]
    return [int(run.removeprefix(RUN)) for run in runs]


def _submission(command: Command) -> bool:
    """Whether a worker creates the job of a due time with this command."""
    return any(word.startswith(RUN) for word in command.words)


def _due(command: Command) -> int:
    (run,) = {word for word in command.words if word.startswith(RUN)}
    return int(run.removeprefix(RUN))


def _worker(fleet: Fleet, proxy: Proxy) -> Program:
    """A worker that is connected to the server through a proxy."""
    way = {"JOBWIRE_VALKEY_URL": proxy.url(fleet.valkey.url)}
    return fleet.start_worker(APP, JOBWIRE_WORKER_LEASE="2s", **way)


@clause("J-52")
def test_j52_two_workers_one_killed_and_each_due_time_has_one_run(own_fleet: Fleet) -> None:
    """Both workers are about to submit the same due time, and one of them is killed at that moment:
    the other submits it. A third one is killed after the server has created the job and before the
    reply: the job is not created again. Then no worker runs for longer than a period: only the last
    missed due time gets a job."""
    port = own_fleet.valkey.port
    with (
        Proxy(port) as to_victim,
        Proxy(port) as to_other,
        Proxy(port) as to_third,
        plain_client(own_fleet.valkey, "story") as plain,
    ):
        victim, other = _worker(own_fleet, to_victim), _worker(own_fleet, to_other)
        wait_until_sync(lambda: len(_due_times(plain)) >= 2)

        _killed_while_both_submit((victim, to_victim), to_other, plain)
        _killed_before_it_hears((_worker(own_fleet, to_third), to_third), other, plain)

        other.kill()
        before = set(_due_times(plain))
        back_ms = max(before) + GONE_MS
        wait_until_sync(lambda: plain.time()[0] * 1000 >= back_ms, "some due times to pass")
        own_fleet.start_worker(APP, JOBWIRE_WORKER_LEASE="2s")
        wait_until_sync(lambda: len(set(_due_times(plain)) - before) >= 2)

        counted = Counter(_due_times(plain))
        assert [due for due, count in counted.items() if count > 1] == []
        after = sorted(set(counted) - before)
        assert after[0] >= back_ms, "earlier missed runs are not submitted"

        ids = cast("list[str]", plain.zrange(KEYS.index(), 0, -1))
        wait_until_sync(
            lambda: {plain.hget(KEYS.job(job_id), "status") for job_id in ids} == {"done"},
            "every run to end, including those of killed workers",
            timeout_s=60,
        )


def _killed_while_both_submit(victim: tuple[Program, Proxy], to_other: Proxy, plain: Plain) -> None:
    """Kill one of two workers that have both sent the job of the same due time, before the server
    has seen either. The command of the dead worker arrives nevertheless, last."""
    program, to_victim = victim
    while True:
        dead, alive = to_victim.hold(_submission), to_other.hold(_submission)
        due_ms = _due(dead.wait_reached())
        if _due(alive.wait_reached()) == due_ms:
            break
        dead.release()  # one of them was late by a second: repeat
        alive.release()
    assert due_ms not in _due_times(plain)
    program.kill()
    alive.release()
    wait_until_sync(lambda: due_ms in _due_times(plain), "the other to create the job")
    dead.release()
    wait_until_sync(lambda: max(_due_times(plain)) > due_ms, "the other to continue")
    assert _due_times(plain).count(due_ms) == 1


def _killed_before_it_hears(third: tuple[Program, Proxy], other: Program, plain: Plain) -> None:
    """Kill a worker after the server has created its job and before the reply."""
    program, to_third = third
    other.freeze()  # so that the third worker creates it
    to_third.forget_seen()
    to_third.cut_reply(_submission)
    due_ms = _due(to_third.wait_seen(_submission))
    wait_until_sync(lambda: due_ms in _due_times(plain))
    program.kill()
    other.thaw()
    wait_until_sync(lambda: max(_due_times(plain)) > due_ms, "the other to continue")
    assert _due_times(plain).count(due_ms) == 1
