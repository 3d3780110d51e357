"""The worker's log: which job a line is about, and one line per finished job."""

from __future__ import annotations

import re

from tests.fleet.runner import Fleet
from tests.support import clause, wait_until_sync

TASKS = ("log", "log-in-thread", "log-in-process")


@clause("J-55")
def test_j55_log_lines_carry_the_id_of_their_own_job(fleet: Fleet) -> None:
    assert fleet.worker is not None
    worker = fleet.worker
    with fleet.client() as client:
        jobs = {
            client.submit(task, {"wait": wait}, timeout_s=0.3 if wait else 60).job_id: (task, wait)
            for wait in (False, True, False)
            for task in TASKS
        }
        for job_id in jobs:
            client.wait(job_id)

    def lines(pattern: str) -> list[str]:
        found = [line for line in worker.output.splitlines() if re.search(pattern, line)]
        return [line for line in found if any(job_id in line for job_id in jobs)]

    # A child process writes to the same pipe by itself.
    wait_until_sync(lambda: len(lines("at work")) == len(jobs), "the handlers' lines")
    wait_until_sync(lambda: len(lines("job (done|failed) ")) == len(jobs), "the worker's lines")
    for line in lines("at work"):
        logged, own = re.findall(r"at work: (\S+)  job_id=(\S+)", line)[0]
        assert logged == own
    for line in lines("job (done|failed) "):
        event, task, own = re.findall(r"job (\w+) task=(\S+) .*job_id=(\S+)", line)[0]
        assert (task, event == "failed") == jobs[own]
    output = worker.output.replace("\r", "")
    assert re.search(r"\n +LookupError: not here\n", output), "a traceback has line breaks"
