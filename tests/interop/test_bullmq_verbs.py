"""B-10: each verb with generated options, and each refusal, beside the official packages."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.interop.bullmq_lab import LOCK_MS, Lab, Version
from tests.interop.bullmq_sequences import HOUR_MS, job_options, plain_options, values, workers
from tests.support import clause

DEEP = os.environ.get("JOBWIRE_BULLMQ_EXAMPLES", "")
EXAMPLES = int(DEEP or "12")
WORKER: dict[str, Any] = {"lockDuration": LOCK_MS, "stalledInterval": HOUR_MS}
FAILURE: dict[str, Any] = {"reason": "because", "stack": "Error: because\n    at handler"}

generated = settings(
    max_examples=EXAMPLES,
    derandomize=not DEEP,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
# Deduplication differs in version 5: it has other events and modes.
shared_options = st.fixed_dictionaries(
    {},
    optional={**plain_options, "jobId": st.just("mine"), "timestamp": st.just(1_790_000_000_000)},
)

VERBS: dict[str, dict[str, Any]] = {
    "complete": {},
    "fail": FAILURE,
    "fail for good": {**FAILURE, "final": True},
    "delay": {"until": 0},
    "release": {},
    "waitChildren": {},
    "progress": {},
    "data": {},
    "log": {"line": "a line", "keep": 2},
}


@pytest.mark.parametrize("version", [6, 5])
@clause("B-1", "B-10")
@generated
@given(opts=shared_options, value=values, paused=st.booleans(), extras=st.booleans())
def test_b10_add(
    lab: Lab, version: Version, opts: dict[str, Any], value: Any, paused: bool, extras: bool
) -> None:
    lab.reset(extras=extras, version=version)
    if paused:
        lab.step("pause")
    for _ in range(2):
        lab.step("add", name="job", data=value, opts=opts)
        lab.step("add", name="job", data=value, opts={})


@clause("B-1", "B-10")
@generated
@given(jobs=st.lists(st.tuples(shared_options, values), min_size=1, max_size=5))
def test_b10_bulk(lab: Lab, jobs: list[tuple[dict[str, Any], Any]]) -> None:
    lab.reset()
    bulk = [
        {"name": f"job{at}", "data": data, "opts": opts} for at, (opts, data) in enumerate(jobs)
    ]
    lab.step("addBulk", jobs=bulk)


@pytest.mark.parametrize("version", [6, 5])
@pytest.mark.parametrize("verb", VERBS)
@clause("B-2", "B-4", "B-5", "B-7", "B-10")
@generated
@given(
    opts=shared_options,
    value=values,
    worker=workers,
    more=st.booleans(),
    later_ms=st.sampled_from([0, 1000, 61_000]),
    extras=st.booleans(),
)
def test_b10_operations_of_a_worker(
    lab: Lab,
    version: Version,
    verb: str,
    opts: dict[str, Any],
    value: Any,
    worker: dict[str, Any],
    more: bool,
    later_ms: int,
    extras: bool,
) -> None:
    lab.reset(extras=extras, version=version)
    given = {**VERBS[verb]}
    op = verb.split()[0]
    job_id = lab.step("add", name="job", data=value, opts=opts)
    if more:
        lab.step("add", name="another", data={}, opts={"priority": 1})
    lab.step("take", token="t0", worker=worker, advance_ms=61_000)
    if op == "delay":
        given["until"] = lab.now + 5000
    if op in ("complete", "progress", "data"):
        given["value"] = value
    call: dict[str, Any] = {"id": job_id, "token": "t0", "worker": worker, **given}
    if lab.step("state", id=job_id) == "active":
        lab.step(op, advance_ms=later_ms, **call)
        lab.step("take", token="t1", worker=worker, advance_ms=later_ms)


@pytest.mark.parametrize("trouble", ["missing", "no lock", "foreign lock", "not active"])
@pytest.mark.parametrize(
    "verb", [verb for verb in VERBS if verb not in ("progress", "data", "log")]
)
@clause("B-4", "B-5", "B-10")
def test_b10_refusals_have_the_same_code_and_leave_the_same_keys(
    lab: Lab, verb: str, trouble: str
) -> None:
    lab.step("add", name="job", data={}, opts={"attempts": 2})
    lab.step("take", token="t", worker=WORKER)
    if trouble == "no lock":
        lab.both("DEL", "bull:q:1:lock")
    if trouble == "not active":
        lab.both("LREM", "bull:q:active", 0, "1")
    call: dict[str, Any] = {"id": "1", "token": "t", "worker": WORKER, "value": 1}
    call |= VERBS[verb]
    if "until" in call:
        call["until"] = lab.now + 1000
    if trouble == "missing":
        call["id"] = "nope"
    if trouble == "foreign lock":
        call["token"] = "foreign"
    answer = lab.step(verb.split()[0], **call)
    codes = {"missing": -1, "no lock": -2, "not active": -3, "foreign lock": -6}
    if verb not in ("release", "waitChildren"):
        assert answer == {"code": codes[trouble]}


@clause("B-3", "B-10")
def test_b10_renew(lab: Lab) -> None:
    for at in range(3):
        lab.step("add", name="job", data={}, opts={})
        lab.step("take", token=f"t{at}", worker=WORKER)
    lab.step("stalled", worker=WORKER)
    lab.both("DEL", "bull:q:2:lock")
    ids = ["1", "2", "3", "nope"]
    lost = lab.step("renew", ids=ids, tokens=["t0", "t1", "foreign", "t"], worker=WORKER)
    assert lost == ["2", "3", "nope"]


@pytest.mark.parametrize("version", [6, 5])
@clause("B-6", "B-10")
def test_b10_stalled(lab: Lab, version: Version) -> None:
    lab.reset(version=version)
    for priority in (0, 5, 0):
        opts = {"priority": priority} if priority else {}
        lab.step("add", name="job", data={}, opts=opts)
        lab.step("take", token="t", worker=WORKER)
    assert lab.step("stalled", worker=WORKER) == []
    lab.both("DEL", "bull:q:1:lock", "bull:q:2:lock")
    assert lab.step("stalled", worker=WORKER) == [], "not again in this interval"
    lab.both("DEL", "bull:q:stalled-check")
    assert sorted(lab.step("stalled", worker=WORKER)) == ["1", "2"]
    for _ in range(2):
        lab.step("take", token="u", worker=WORKER)
    lab.both("DEL", "bull:q:stalled-check")
    assert lab.step("stalled", worker=WORKER) == []
    lab.both("DEL", "bull:q:1:lock", "bull:q:stalled-check")
    assert lab.step("stalled", worker=WORKER) == ["1"]
    assert lab.theirs.hget("bull:q:1", "defa") == "job stalled more than allowable limit"


@clause("B-8", "B-10")
def test_b10_pause_and_resume_with_jobs_in_the_paused_list_of_version_5(lab: Lab) -> None:
    for at in range(3):
        lab.step("add", name=f"job{at}", data={}, opts={})
    lab.step("pause")
    lab.both("RPUSH", "bull:q:paused", "aside1", "aside2")
    lab.step("resume")
    lab.both("RENAME", "bull:q:wait", "bull:q:paused")
    lab.step("pause")
    lab.step("resume")
    lab.step("resume")


@clause("B-10")
@generated
@given(opts=st.lists(job_options, min_size=1, max_size=8))
def test_b10_counts_states_and_ranges(lab: Lab, opts: list[dict[str, Any]]) -> None:
    lab.reset()
    ids = [lab.step("add", name="job", data={}, opts=each) for each in opts]
    lab.step("take", token="t", worker=WORKER)
    lab.step("counts")
    for job_id in [*ids, "nope"]:
        lab.step("state", id=job_id)
        lab.step("logs", id=job_id)
    for state in ("wait", "active", "delayed", "prioritized", "completed", "failed"):
        for first, last in ((0, 0), (0, 3), (2, 5), (50, 60)):
            for ascending in (True, False):
                lab.step("range", state=state, first=first, last=last, ascending=ascending)


@clause("B-1", "B-2", "B-4", "B-5", "B-7", "B-10")
@generated
@given(opts=st.fixed_dictionaries({}, optional=plain_options), value=values, fail=st.booleans())
def test_b10_the_python_package(lab: Lab, opts: dict[str, Any], value: Any, fail: bool) -> None:
    lab.reset(version="py")
    worker = {"lockDuration": LOCK_MS}
    opts = {"delay": 0, **opts}
    opts.pop("keepLogs", None)
    opts.pop("telemetry", None)
    job_id = lab.step("add", name="job", data={"value": value}, opts=opts)
    lab.now += 61_000
    lab.step("take", token="t", worker=worker)
    lab.step("progress", id=job_id, value=value, worker=worker)
    if fail:
        lab.step("fail", id=job_id, token="t", worker=worker, **FAILURE)
    else:
        lab.step("complete", id=job_id, token="t", value=value, worker=worker)
    lab.step("state", id=job_id)
