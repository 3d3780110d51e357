"""B-8, B-10: each verb of administration, with its refusals, beside the official package."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop.bullmq_lab import LOCK_MS, START_MS, ZONES, Lab
from tests.interop.bullmq_sequences import HOUR_MS, POLICIES
from tests.support import clause

WORKER: dict[str, Any] = {"lockDuration": LOCK_MS, "stalledInterval": HOUR_MS}
COUNTING: dict[str, Any] = {**WORKER, "metrics": {"maxDataPoints": 5}}
FAILURE: dict[str, Any] = {"reason": "because", "stack": "S"}
SCHEDULER = "tenant:region:tick"


def add(lab: Lab, **opts: Any) -> str:
    return lab.step("add", name="job", data={}, opts=opts)


def finish(lab: Lab, *, fail: bool = False, worker: dict[str, Any] = WORKER) -> str:
    """The next job, taken and ended."""
    lab.now += 1
    job_id = lab.step("take", token="t", worker=worker)["job"]
    if fail:
        lab.step("fail", id=job_id, token="t", worker=worker, **FAILURE)
    else:
        lab.step("complete", id=job_id, token="t", worker=worker, value={"n": 1})
    return job_id


def tree(*children: dict[str, Any], job_id: str = "root", queue: str = "q") -> dict[str, Any]:
    return {
        "name": "node",
        "queueName": queue,
        "data": {},
        "opts": {"jobId": job_id},
        "children": list(children),
    }


def every_state(lab: Lab) -> dict[str, str]:
    """A queue with a job in each state; the ids by state."""
    add(lab)
    completed = finish(lab)
    add(lab)
    failed = finish(lab, fail=True)
    add(lab)
    active = lab.step("take", token="held", worker=WORKER)["job"]
    ids = {
        "completed": completed,
        "failed": failed,
        "active": active,
        "waiting": add(lab),
        "prioritized": add(lab, priority=3),
        "delayed": add(lab, delay=60_000),
    }
    lab.step("flow", tree=tree(tree(job_id="child", queue="r")))
    return {**ids, "waiting-children": "root", "unknown": "nope"}


STATES = (
    *("completed", "failed", "active", "waiting"),
    *("prioritized", "delayed", "waiting-children", "unknown"),
)
ON_ONE_JOB: dict[str, dict[str, Any]] = {
    "promote": {},
    "changeDelay": {"delay": 5000},
    "changePriority": {"priority": 9},
    "reprocess": {"state": "failed"},
    "remove": {},
    "removeChildren": {},
    "clearLogs": {},
    "children": {},
    "detach": {},
}


@pytest.mark.parametrize("verb", ON_ONE_JOB)
@clause("B-8", "B-10")
def test_b10_verbs_on_one_job_in_each_state(lab: Lab, verb: str) -> None:
    ids = every_state(lab)
    for state in STATES:
        assert lab.step("state", id=ids[state]) == state
        lab.step(verb, id=ids[state], advance_ms=10, **ON_ONE_JOB[verb])
    lab.step("take", token="after", worker=WORKER)


@clause("B-8", "B-10")
def test_b10_priority_changes_keep_the_order(lab: Lab) -> None:
    ids = [add(lab, priority=5) for _ in range(3)] + [add(lab)]
    for job_id in ids:
        lab.step("changePriority", id=job_id, priority=2, lifo=True)
    lab.step("changePriority", id=ids[0], priority=0)
    lab.step("changePriority", id=ids[1], priority=0, lifo=True)
    lab.step("perPriority", priorities=[0, 2, 5])
    order = [lab.step("take", token="t", worker=WORKER)["job"] for _ in ids]
    assert order[:2] == [ids[1], ids[0]]


@pytest.mark.parametrize("state", ["completed", "failed"])
@clause("B-8", "B-10")
def test_b10_retrying_finished_jobs(lab: Lab, state: str) -> None:
    for at in range(5):
        add(lab, **({"priority": 4} if at == 2 else {"lifo": True} if at == 3 else {}))
        finish(lab, fail=state == "failed")
    for made, started in ((False, False), (True, False), (True, True)):
        ids = lab.step("range", state=state, first=0, last=0, ascending=True)
        lab.step("reprocess", id=ids[0], state=state, made=made, started=started)
    lab.step("retryJobs", state=state, count=1, before=lab.now)
    assert lab.step("counts")[state] == 0
    finish(lab)


@clause("B-8", "B-10")
def test_b10_promoting_all_delayed_jobs(lab: Lab) -> None:
    for delay in (1000, 1000, 60_000, 5):
        add(lab, delay=delay, **({"priority": 2} if delay == 5 else {}))
    lab.step("promoteJobs", count=3)
    assert lab.step("counts")["waiting"] == 4


@pytest.mark.parametrize("delayed", [False, True])
@clause("B-8", "B-10")
def test_b10_drain(lab: Lab, delayed: bool) -> None:
    every_state(lab)
    lab.step("flow", tree=tree(tree(job_id="own"), tree(job_id="own2"), job_id="same queue"))
    add(lab, deduplication={"id": "x"})
    lab.step("drain", delayed=delayed)
    lab.step("drain", queue="r")
    assert lab.step("state", id="same queue") == "unknown", (
        "a parent is removed with its last child"
    )


@clause("B-8", "B-10")
def test_b10_a_drained_queue_keeps_its_schedulers_job(lab: Lab) -> None:
    """The official package deletes the job beside it and leaves an id without a job."""
    call: dict[str, Any] = {"queue": "q", "now": lab.now}
    template: dict[str, Any] = {"name": "tick", "data": {}}
    first: dict[str, Any] = {**call, "op": "add", "name": "job", "opts": {}}
    lab.do_ours(first)
    scheduler: dict[str, Any] = {
        "scheduler": "s",
        "repeat": {"every": 60_000},
        "template": template,
    }
    current = lab.do_ours({**call, "op": "schedule", **scheduler})
    for _ in range(3):
        lab.do_ours(first)
    lab.do_ours({**call, "op": "drain"})
    left = lab.states()[0]
    assert left["bull:q:wait"] == [current]
    assert [key for key in left if key.split(":")[-1].isdigit()] == [f"bull:q:{current}"]


@pytest.mark.parametrize("state", ["completed", "failed", "wait", "delayed", "prioritized"])
@clause("B-8", "B-10")
def test_b10_clean(lab: Lab, state: str) -> None:
    for at in range(6):
        lab.now += 1000
        if state in ("completed", "failed"):
            add(lab)
            finish(lab, fail=state == "failed")
        elif state == "wait":
            add(lab)
        else:
            add(lab, **({"delay": 60_000 + at} if state == "delayed" else {"priority": 6 - at}))
    assert lab.step("clean", state=state, grace=HOUR_MS, limit=0) == []
    assert len(lab.step("clean", state=state, grace=0, limit=2)) == 2
    lab.step("clean", state=state, grace=2500, limit=0)
    lab.step("clean", state=state, grace=0, limit=0)
    assert sum(lab.step("counts").values()) == 0


@clause("B-8", "B-10")
def test_b10_clean_leaves_active_jobs_that_have_a_lock(lab: Lab) -> None:
    for token in ("a", "b"):
        add(lab)
        lab.step("take", token=token, worker=WORKER)
    lab.both("DEL", "bull:q:1:lock")
    assert lab.step("clean", state="active", grace=0, limit=0, advance_ms=10) == ["1"]


@pytest.mark.parametrize("force", [False, True])
@clause("B-8", "B-10")
def test_b10_obliterate(lab: Lab, force: bool) -> None:
    every_state(lab)
    lab.step("schedule", scheduler="s", repeat={"every": 1000}, template={"name": "tick"})
    refused = lab.step("obliterate", force=force)
    assert bool(refused) is not force
    lab.step("obliterate", queue="r")


@clause("B-8", "B-10")
def test_b10_removing_a_flow(lab: Lab) -> None:
    deep = tree(tree(tree(job_id="leaf", queue="r"), job_id="middle"), tree(job_id="other"))
    for children in (True, False):
        lab.reset()
        lab.step("flow", tree=deep)
        lab.step("remove", id="root", children=children)
    lab.reset()
    lab.step("flow", tree=deep)
    lab.step("take", queue="r", token="t", worker=WORKER)
    assert lab.step("remove", id="root") == 0, "a worker has a job below it"
    lab.step("remove", id="other")
    lab.step("removeChildren", id="middle")
    lab.step("complete", queue="r", id="leaf", token="t", worker=WORKER, value=1)
    lab.step("take", token="t", worker=WORKER)
    lab.step("complete", id="middle", token="t", worker=WORKER, value=1)
    lab.step("children", id="root")
    lab.step("remove", id="root")


@pytest.mark.parametrize("policy", [*POLICIES, ""])
@clause("B-8", "B-10")
def test_b10_a_retried_child_is_waited_for_again(lab: Lab, policy: str) -> None:
    child = tree(job_id="child")
    child["opts"] |= {policy: True} if policy else {}
    lab.step("flow", tree=tree(child, tree(job_id="second", queue="r")))
    finish(lab, fail=True)
    lab.step("children", id="root")
    lab.step("reprocess", id="child", state="failed")
    lab.step("children", id="root")
    lab.step("detach", id="child")
    lab.step("removeChildren", id="root")
    lab.step("state", id="root")


@clause("B-8", "B-10")
def test_b10_a_flow_of_jobs_that_exist(lab: Lab) -> None:
    lab.step("add", name="node", data={}, opts={"jobId": "done"})
    finish(lab)
    lab.step("flow", tree=tree(tree(job_id="done")))
    assert lab.step("state", id="root") == "waiting", "all its children have ended before"
    lab.step("flow", tree=tree(tree(job_id="new"), job_id="root"))
    lab.step("flow", tree={**tree(job_id="late"), "opts": {"jobId": "late"}})


@clause("B-8")
def test_b8_a_flow_with_another_parents_child_creates_nothing(lab: Lab) -> None:
    """The official package adds the rest, whose parent then waits forever."""
    call: dict[str, Any] = {"op": "flow", "queue": "q", "now": lab.now}
    lab.do_ours({**call, "tree": tree(tree(job_id="child"))})
    before = lab.states()[0]
    second = tree(tree(job_id="new"), tree(job_id="child"), job_id="second")
    assert lab.do_ours({**call, "tree": second}) == {"code": -7}
    assert lab.states()[0] == before


REPEATS: list[dict[str, Any]] = [
    {"every": 60_000},
    {"every": 60_000, "offset": 250},
    {"every": 60_000, "startDate": START_MS + 90_000},
    {"every": 1000, "limit": 2},
    {"pattern": "*/10 * * * * *", "limit": 2},
    {"pattern": "0 3 * * *", "tz": "Europe/Berlin"},
    {"pattern": "15 30 4 * * 1", "immediately": True},
    {"pattern": "0 3 * * *"},
    {"pattern": "30 2 14 3 *", "limit": 3},  # the clocks of New York go forward at this time
]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("repeat", REPEATS, ids=lambda repeat: "-".join(map(str, repeat.values())))
@clause("B-8", "B-10")
def test_b10_schedulers(lab: Lab, repeat: dict[str, Any], zone: str) -> None:
    lab.reset(zone=zone)
    template = {"name": "tick", "data": {"n": 1}, "opts": {"priority": 3, "attempts": 2}}
    lab.step("schedule", scheduler=SCHEDULER, repeat=repeat, template=template)
    lab.step(
        "schedule", scheduler=SCHEDULER, repeat=repeat, template={"name": "other"}, advance_ms=1
    )
    lab.step("schedulers")
    lab.step("take", token="t", worker=WORKER, advance_ms=100_000)
    lab.step("schedule", scheduler=SCHEDULER, repeat=repeat, template=template, advance_ms=61_000)
    lab.step("take", token="u", worker=WORKER, advance_ms=61_000)
    lab.step("schedule", scheduler=SCHEDULER, repeat={"every": 5000}, template=template)
    lab.step("schedulers")
    assert lab.step("unschedule", scheduler=SCHEDULER) is True
    assert lab.step("unschedule", scheduler=SCHEDULER) is False


@clause("B-8")
def test_b8_where_the_zone_has_no_name_the_scheduler_has_utc(lab: Lab) -> None:
    lab.reset(zone="CET-1CEST,M3.5.0,M10.5.0/3")
    call: dict[str, Any] = {"queue": "q", "now": lab.now, "scheduler": "nightly"}
    repeat, template = {"pattern": "0 3 * * *"}, {"name": "tick"}
    lab.do_ours({**call, "op": "schedule", "repeat": repeat, "template": template})
    (found,) = lab.do_ours({**call, "op": "schedulers"})
    assert found["tz"] == "UTC"
    # Wherever the one that takes it lives.
    lab.zone = "Asia/Kathmandu"
    lab.now += 24 * HOUR_MS
    taken = lab.on_ours("take", token="t", worker=WORKER)["job"]
    assert taken == f"repeat:nightly:{found['next']}"
    assert lab.on_ours("schedulers")[0]["next"] % (24 * HOUR_MS) == 3 * HOUR_MS


@clause("B-21", "B-10")
def test_b21_a_scheduler_whose_id_has_colons_makes_its_jobs(lab: Lab) -> None:
    lab.step("schedule", scheduler=SCHEDULER, repeat={"every": 60_000}, template={"name": "tick"})
    for _ in range(2):
        taken = lab.step("take", token="t", worker=WORKER)["job"]
        assert taken.startswith(f"repeat:{SCHEDULER}:")
        lab.step("complete", id=taken, token="t", worker=WORKER, value=None, advance_ms=61_000)
    assert len(lab.step("schedulers")) == 1


@clause("B-21", "B-10")
@pytest.mark.parametrize("more", [{}, {"delay": 5000}, {"priority": 2}])
def test_b21_a_flow_of_one_job_is_deduplicated(lab: Lab, more: dict[str, Any]) -> None:
    """Each side has the ids of its own choice: the second flow is answered with the first job."""
    opts = {"jobId": "root", "deduplication": {"id": "once"}, **more}
    flow = {"name": "node", "queueName": "q", "data": {}, "opts": opts}
    assert lab.step("flow", tree=flow) == ["root"]
    again = {**flow, "opts": {**opts, "jobId": "other"}}
    assert lab.step("flow", tree=again) == ["root"]
    assert lab.step("counts")["waiting"] == (0 if more else 1)


@clause("B-8", "B-10")
def test_b10_metrics_limits_and_deduplication(lab: Lab) -> None:
    for minute in (0, 0, 60_000, 180_000):
        lab.now += minute
        add(lab)
        finish(lab, fail=minute == 60_000, worker=COUNTING)
    for state in ("completed", "failed"):
        lab.step("metrics", state=state)
    lab.step("globalConcurrency", value=1)
    lab.step("globalRateLimit", max=2, duration=HOUR_MS)
    add(lab)
    lab.step("take", token="t", worker=WORKER)
    assert lab.step("maxed") is True
    lab.step("removeGlobals")
    assert lab.step("maxed") is False
    lab.step("rateLimit", ms=HOUR_MS)
    add(lab)
    limiter = {**WORKER, "limiter": {"max": 2, "duration": HOUR_MS}}
    assert lab.step("take", token="limited", worker=limiter) == {"limited": True}
    lab.step("rateLimit", ms=0)
    owner = add(lab, deduplication={"id": "x"})
    assert lab.step("dedupOwner", dedup="x") == owner
    assert lab.step("dedupFree", dedup="x") is True
    assert lab.step("dedupFree", dedup="x") is False
    lab.step("trimEvents", keep=0)


@clause("B-8", "B-10")
def test_b10_logs(lab: Lab) -> None:
    job_id = add(lab)
    for at in range(4):
        lab.step("log", id=job_id, line=f"line {at}", keep=3)
    lab.step("clearLogs", id=job_id, keep=2)
    assert lab.step("logs", id=job_id)["count"] == 2
    lab.step("clearLogs", id=job_id)
    lab.step("logs", id=job_id)
