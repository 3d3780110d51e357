"""D-17: recorded steps over HTTP, in the client, on the command line and as events."""

from __future__ import annotations

import json
from pathlib import Path

from jobwire import Client
from jobwire.cli.formatting import step_time
from jobwire.job.messages import RECORD_KIND, Done, JobId, Report
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
