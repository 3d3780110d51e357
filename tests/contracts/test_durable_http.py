"""D-17: recorded steps over HTTP, in the client, on the command line and as events."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from jobwire import Client
from jobwire.cli.formatting import step_time
from jobwire.client import AlreadySignaled
from jobwire.job.messages import (
    RECORD_KIND,
    Done,
    Failed,
    JobError,
    JobId,
    Report,
    Suspended,
)
from jobwire.local import LocalValkey
from tests.cli.runner import jobwire
from tests.support import clause
from tests.support.jobs_http import ServedJobs, bearer, problem
from tests.support.raw import Raw
from tests.support.streams import StreamsLab


async def recorded(lab: StreamsLab, tenant: str = "") -> JobId:
    """A done job with two results and a step that was only started."""
    worker = await lab.worker("chat")
    job_id = await lab.submit(task="chat", tenant=tenant)
    (leased,) = await worker.take(1)
    fields = {"s:b": '[0,7,{"a":"ä"}]', "s:a": "[0,5,1]", "o:c": "1"}
    for field, value in fields.items():
        await worker.report([(leased, Report(RECORD_KIND, value, field))])
    await worker.settle([(leased, Done("1"))], 0)
    return job_id


@clause("D-17")
async def test_d17_a_job_lists_its_steps_and_each_has_its_result(
    served: ServedJobs, lab: StreamsLab, raw: Raw
) -> None:
    job_id = await recorded(lab)
    raw.call("HSET", f"job:{job_id}:steps", "s:a", "[9999999999999,5,1]")
    steps = served.client.get(f"/v1/jobs/{job_id}").json()["steps"]
    assert [(each["name"], each["ms"], each["bytes"]) for each in steps] == [
        *(("b", 7, 10), ("a", 5, 1), ("c", None, None))
    ]
    found = served.client.get(f"/v1/jobs/{job_id}/steps/b").json()
    assert (found["result"], found["ms"], found["bytes"]) == ({"a": "ä"}, 7, 10)
    assert found["ended_ts"] == steps[0]["ended_ts"] <= raw.now_ms()
    for name in ("c", "d", "%2e%2e", "a:2"):
        answer = served.client.get(f"/v1/jobs/{job_id}/steps/{name}")
        problem(answer, 404, "step_not_found")
    plain = served.submit()
    assert "steps" not in served.client.get(f"/v1/jobs/{plain['job_id']}").json()
    data = [e for e in await lab.events(job_id) if e["type"] == "step_done"]
    assert [json.loads(each["data"])["name"] for each in data] == ["b", "a"]


@clause("D-17")
async def test_d17_steps_in_the_client_and_on_the_command_line(
    served: ServedJobs, lab: StreamsLab, tmp_path: Path
) -> None:
    job_id = await recorded(lab)
    with Client(served.url) as client:
        job = client.get(job_id)
        assert job.steps is not None
        assert {each.name for each in job.steps} == {"a", "b", "c"}
        assert client.step(job_id, "b").result == {"a": "ä"}
    printed = jobwire("job", job_id, cwd=tmp_path, env={"JOBWIRE_URL": served.url}).stdout
    assert [each["name"] for each in json.loads(printed)["steps"]][-1] == "c"
    times = [step_time(each) for each in job.steps]
    assert times[-1] == "started, no result"


@clause("D-17")
async def test_d17_steps_have_the_tenant_of_their_job(keyed: ServedJobs, lab: StreamsLab) -> None:
    job_id = await recorded(lab, "acme")
    path = f"/v1/jobs/{job_id}/steps/a"
    assert keyed.client.get(path, headers=bearer("acme-reader")).json()["result"] == 1
    problem(keyed.client.get(path, headers=bearer("globex")), 404, "job_not_found")


@clause("D-12", "D-17")
async def test_d12_a_signal_over_http(served: ServedJobs, lab: StreamsLab, raw: Raw) -> None:
    job_id = await suspended(lab)
    path = f"/v1/jobs/{job_id}/signals/approval"
    job = served.client.get(f"/v1/jobs/{job_id}").json()
    (line,) = served.client.get("/v1/jobs").json()["jobs"]
    assert (
        job["waits_for"]
        == line["waits_for"]
        == {"for": "signal", "name": "approval", "until": job["due_ts"]}
    )
    answer = served.client.post(path, content=b'{ "by": "ann" }')
    assert (answer.status_code, answer.json()["outcome"]) == (202, "recorded")
    answer = served.client.post(path, json={"by": "ann"})
    assert (answer.status_code, answer.json()["outcome"]) == (200, "same")
    problem(served.client.post(path, json=1), 409, "already_signaled")
    problem(served.client.post(path, content=b"{"), 422, "bad_signal")
    # Regression: the place was that in a text of our own, and the value was called the payload.
    detail = served.client.post(path, content=b"{by").json()["detail"]
    assert detail.startswith("the value is not JSON: "), detail
    assert "(byte 1)" in detail
    twice = served.client.post(path, content=b'{"by": 1, "by": 2}').json()["detail"]
    assert twice.startswith("the value is not acceptable: "), twice
    assert served.client.post(path, content=b'1, "more": 2').status_code == 422
    for depth in (100, 30_000):
        problem(served.client.post(path, content=b"[" * depth + b"]" * depth), 422, "bad_signal")
    problem(served.client.post(path, content=b'"' + b"x" * 70_000 + b'"'), 413, "too_large")
    problem(served.client.post(path.replace("approval", "a:b"), json=1), 422, "bad_signal")
    problem(served.client.post("/v1/jobs/none/signals/approval", json=1), 404, "job_not_found")
    assert "waits_for" not in served.client.get(f"/v1/jobs/{job_id}").json()
    served.client.post(f"/v1/jobs/{job_id}/cancel")
    problem(served.client.post(path, json=1), 409, "already_finished")


@clause("D-12")
async def test_d12_signals_are_bounded(served: ServedJobs, lab: StreamsLab, raw: Raw) -> None:
    job_id = await suspended(lab)
    for number in range(100):
        assert await lab.queue.signal(job_id, f"s{number}", "1") == "recorded"
    path = f"/v1/jobs/{job_id}/signals/more"
    problem(served.client.post(path), 409, "too_many_signals")
    raw.call("HDEL", f"job:{job_id}:steps", "g:s0")
    raw.call("HSET", f"job:{job_id}", "outside_bytes", 4 << 20)
    problem(served.client.post(path), 409, "too_many_signals")
    served.client.post(f"/v1/jobs/{job_id}/cancel")


@clause("D-6", "D-12")
async def test_d06_a_full_server_refuses_a_signal(
    valkey: LocalValkey, lab: StreamsLab, raw: Raw, server_setting: Callable[[str, str], None]
) -> None:
    job_id = await lab.submit()
    path = f"/v1/jobs/{job_id}/signals/approval"
    with ServedJobs(valkey.url) as own:
        server_setting("maxmemory", "1")
        problem(own.client.post(path, json=1), 503, "unavailable")
        assert not raw.exists(f"job:{job_id}:steps")
        server_setting("maxmemory", "0")
        assert own.client.post(path, json=1).status_code == 202


@clause("D-12")
async def test_d12_the_scope_and_the_tenant_of_a_signal(keyed: ServedJobs, lab: StreamsLab) -> None:
    job_id = await suspended(lab, "acme")
    path = f"/v1/jobs/{job_id}/signals/approval"
    problem(keyed.client.post(path, headers=bearer("acme-reader")), 403, "forbidden")
    problem(keyed.client.post(path, headers=bearer("globex-signal")), 404, "job_not_found")
    assert keyed.client.post(path, headers=bearer("acme-signal")).status_code == 202
    await lab.queue.cancel(job_id)


@clause("D-12", "D-17")
async def test_d12_a_signal_by_the_client_and_on_the_command_line(
    served: ServedJobs, lab: StreamsLab, tmp_path: Path
) -> None:
    job_id = await suspended(lab)
    env = {"JOBWIRE_URL": served.url}
    listed = jobwire("list", cwd=tmp_path, env=env).stdout
    with Client(served.url) as client:
        waits_for = client.get(job_id).waits_for
        assert waits_for
        assert (waits_for.kind, waits_for.name) == ("signal", "approval")
        assert client.signal(job_id, "approval", {"by": "ann"}).outcome == "recorded"
        with pytest.raises(AlreadySignaled):
            client.signal(job_id, "approval", {"by": "bob"})
        client.cancel(job_id)
    other = await suspended(lab)
    sent = jobwire("signal", other, "approval", '{"by": "ann"}', cwd=tmp_path, env=env)
    assert json.loads(sent.stdout)["outcome"] == "recorded", listed
    assert jobwire("signal", other, "note", "hello", cwd=tmp_path, env=env).returncode == 0
    # A signal has one value: what was meant as JSON is not sent as a text.
    for value in ('{"by": "ann"', "[1,", '"ann'):
        broken = jobwire("signal", other, "broken", value, cwd=tmp_path, env=env)
        assert (broken.returncode, broken.stdout) == (2, "")
        assert "the value is not valid JSON: " in broken.stderr
    unnamed = jobwire("signal", other, "", "1", cwd=tmp_path, env=env)
    assert "is an id or a name empty" in unnamed.stderr
    assert "too short" in jobwire("signal", "", "note", cwd=tmp_path, env=env).stderr
    await lab.queue.cancel(other)


@clause("D-13")
async def test_d13_a_retry_keeps_what_is_recorded(
    served: ServedJobs, lab: StreamsLab, raw: Raw
) -> None:
    worker = await lab.worker("chat")
    job_id = await lab.submit(task="chat")
    (leased,) = await worker.take(1)
    for field, value in {"s:a": "[0,5,1]", "o:b": "1", "e:b": "[0,5,{}]"}.items():
        await worker.report([(leased, Report(RECORD_KIND, value, field))])
    past, ahead = raw.now_ms() - 1, raw.now_ms() + 10**7
    more = {
        "t:sleep": past,
        "t:sleep:2": ahead,
        "t:signal:x": past,
        "g:x": f"[{past}]",
        "g:y": f"[{past},1]",
        "k:a@r": '["A","r"]',
        "c:a@r": f'[{past},"done",1]',
        "k:b@r": '["B","r"]',
        "c:b@r": f'[{past},"error",1]',
        "k:c@r": '["C","r"]',
    }
    for field, value in more.items():
        raw.call("HSET", f"job:{job_id}:steps", field, value)
    await worker.settle([(leased, Failed(JobError("bug", "a bug")))], 0)
    path = f"/v1/jobs/{job_id}/retry"
    plain = served.client.post(path).json()["job_id"]
    assert not raw.exists(f"job:{plain}:steps")
    kept = served.client.post(path, json={"keep_steps": True}).json()["job_id"]
    found = raw.fields(f"job:{kept}:steps")
    assert set(found) == {"s:a", "o:b", "t:sleep", "g:y", "k:a@r", "c:a@r"}
    assert raw.field(f"job:{kept}", "steps") == "6", "the worker reads it"
    assert 0 < cast(int, raw.call("PTTL", f"job:{kept}:steps")) <= 86_400_000
    with Client(served.url) as client:
        assert client.retry(job_id, keep_steps=True).retry_of == job_id


async def suspended(lab: StreamsLab, tenant: str = "") -> JobId:
    """A job that waits for the signal `approval`."""
    worker = await lab.worker("chat")
    job_id = await lab.submit(task="chat", tenant=tenant)
    (leased,) = await worker.take(1)
    wait = Suspended("signal", "approval", 3600, "t:signal:approval", ("g:approval",))
    await worker.settle([(leased, wait)], 0)
    return job_id
