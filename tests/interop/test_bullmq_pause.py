"""B-22: npm bullmq 5 moves the waiting jobs of a paused queue to the list `paused`, and its resume
renames that list over `wait`. Jobs in the wrong one of the two lists are lost."""

from __future__ import annotations

from itertools import product
from typing import Any, Final

import pytest

from tests.interop.bullmq_lab import LOCK_MS, Lab, Version
from tests.interop.bullmq_sequences import HOUR_MS
from tests.support import clause

OURS: Final = "jobwire"
NODE_5: Final = "bullmq 5"
NODE_6: Final = "bullmq 6"
PYTHON: Final = "bullmq of PyPI"
VERSIONS: Final[dict[str, Version]] = {NODE_5: 5, NODE_6: 6, PYTHON: "py"}
WORKER: dict[str, Any] = {"lockDuration": LOCK_MS, "stalledInterval": HOUR_MS}
FAILURE: dict[str, Any] = {"reason": "because", "stack": "S"}


def do(lab: Lab, program: str, op: str, **more: Any) -> Any:
    """One program of a fleet on one queue."""
    if program == OURS:
        return lab.do_ours({"op": op, "queue": "q", "now": lab.now, **more})
    lab.version = VERSIONS[program]
    return lab.on_ours(op, **more)


def add(lab: Lab, program: str) -> str:
    lab.now += 1
    return do(lab, program, "add", name="job", data={}, opts={})


@clause("B-22")
@pytest.mark.parametrize("opened", [True, False], ids=["opened", "no-version"])
@pytest.mark.parametrize("waiting", [True, False], ids=["jobs-wait", "no-job-waits"])
def test_b22_no_job_is_lost_whoever_pauses_adds_and_resumes(
    lab: Lab, waiting: bool, opened: bool
) -> None:
    """A program of version 5 may leave `meta.version` unwritten."""
    for pauses, adds, resumes in product((OURS, NODE_5), repeat=3):
        lab.reset()
        if opened:
            do(lab, NODE_5, "open")
        ids = [add(lab, adds) for _ in range(2 * waiting)]
        do(lab, pauses, "pause")
        ids += [add(lab, program) for program in (adds, OURS, NODE_5, OURS)]
        assert do(lab, OURS, "counts")["waiting"] == len(ids)
        assert [do(lab, OURS, "state", id=each) for each in ids] == ["waiting"] * len(ids)
        page = do(lab, OURS, "range", state="wait", first=1, last=3, ascending=True)
        assert page == ids[1:4], "jobs of the list `paused` are listed"
        do(lab, resumes, "resume")
        story = f"{pauses} pauses, {adds} adds, {resumes} resumes"
        taken = [do(lab, OURS, "take", token=f"t{n}", worker=WORKER) for n in range(len(ids))]
        assert [each.get("job") for each in taken] == ids, story


@clause("B-22")
def test_b22_every_program_resumes_what_ours_paused_in_a_queue_without_version(lab: Lab) -> None:
    for adds, resumes in product((OURS, NODE_5, NODE_6, PYTHON), repeat=2):
        if resumes == NODE_5 and adds in (NODE_6, PYTHON):
            continue  # they lose jobs to each other, see the docs
        lab.reset()
        ids = [add(lab, program) for program in (OURS, adds)]
        do(lab, OURS, "pause")
        ids += [add(lab, program) for program in (OURS, adds)]
        do(lab, resumes, "resume")
        taken = [do(lab, OURS, "take", token=f"t{n}", worker=WORKER).get("job") for n in range(4)]
        assert {*taken} == {*ids}, f"{adds} adds, {resumes} resumes"


@clause("B-22")
def test_b22_version_6_resumes_what_version_5_paused(lab: Lab) -> None:
    first = add(lab, NODE_5)
    do(lab, NODE_5, "pause")
    do(lab, NODE_6, "open")  # `meta.version` is that of version 6 now
    ids = [first, *(add(lab, OURS) for _ in range(3))]
    do(lab, NODE_6, "resume")
    taken = [do(lab, NODE_6, "take", token=f"t{n}", worker=WORKER)["job"] for n in range(4)]
    assert taken == ids


@clause("B-22", "B-10")
def test_b22_each_verb_puts_jobs_into_the_list_that_version_5_resumes(lab: Lab) -> None:
    """Beside version 5: the same keys after each verb, and nothing lost at its resume."""
    lab.reset(version=5)

    def step(op: str, **more: Any) -> Any:
        return lab.step(op, advance_ms=1, **more)

    def added(**opts: Any) -> str:
        return step("add", name="job", data={}, opts=opts)

    again, stalled, failed = (added(attempts=attempts) for attempts in (2, 1, 1))
    for token in ("again", "stalled", "failed"):
        step("take", token=token, worker=WORKER)
    step("fail", id=failed, token="failed", worker=WORKER, **FAILURE)
    promoted, due = added(delay=60_000), added(delay=5)
    released = added()
    step("take", token="released", worker=WORKER)
    step("stalled", worker=WORKER)
    step("pause")
    step("fail", id=again, token="again", worker=WORKER, **FAILURE)
    step("release", id=released, token="released", worker=WORKER)
    step("promote", id=promoted)
    step("reprocess", id=failed, state="failed")
    lab.now += 10
    step("take", token="none", worker=WORKER)
    lab.both("DEL", f"bull:q:{stalled}:lock", "bull:q:stalled-check")
    step("stalled", worker=WORKER)
    moved = added(priority=3)
    step("changePriority", id=moved, priority=0)
    step("changePriority", id=moved, priority=2)
    step("changePriority", id=moved, priority=0)
    every = {again, stalled, failed, promoted, due, released, moved}
    assert {*lab.ours.lrange("bull:q:paused", 0, -1)} == every
    step("resume")
    assert {*lab.ours.lrange("bull:q:wait", 0, -1)} == every
    step("pause")
    assert {*do(lab, OURS, "clean", grace=0, limit=0, state="wait")} == every
