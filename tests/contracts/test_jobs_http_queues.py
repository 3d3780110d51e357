"""J-53: queues and routing over HTTP, and J-54 for the routes that create jobs from other
requests."""

from __future__ import annotations

from typing import cast

import pytest

from jobwire.job.messages import (
    AlreadyRun,
    Done,
    Failed,
    JobError,
    JobRequest,
    NotDue,
    Submitted,
    TaskDefinition,
)
from jobwire.systems.jobs.cron_store import StreamsCronStore
from jobwire.systems.jobs.engine import StreamsEngine
from tests.support import Fresh, clause, wait_until_sync
from tests.support.jobs_http import JsonObject, ServedJobs, bearer, problem
from tests.support.raw import Raw
from tests.support.streams import StreamsLab

NAMED = '{"type":"object","required":["name"]}'


def queues(served: ServedJobs, **headers: str) -> dict[str, JsonObject]:
    answer = served.client.get("/v1/jobs/queues", headers=headers)
    assert answer.status_code == 200, answer.text
    listed = cast("list[JsonObject]", answer.json()["queues"])
    return {str(queue["name"]): queue for queue in listed}


def submitted_to(served: ServedJobs, task: str, queue: str) -> bool:
    return served.submit(task)["queue"] == queue


# ── routing ──────────────────────────────────────────────────────────────────────────────────────


@clause("J-53")
async def test_j53_a_job_is_enqueued_where_its_task_is_registered(
    served: ServedJobs, lab: StreamsLab, raw: Raw, fresh: Fresh
) -> None:
    task, queue = fresh("task"), fresh("queue")
    await lab.worker(task, queues=(queue,))
    made = served.submit(task)
    assert made["queue"] == queue
    assert served.job(made["job_id"])["queue"] == queue
    assert raw.length(f"jobs:stream:{queue}") == 1
    body: JsonObject = {"jobs": [{"task": task, "payload": {}}, {"task": "chat", "payload": {}}]}
    served.client.post("/v1/jobs/batch", json=body).raise_for_status()
    assert (raw.length(f"jobs:stream:{queue}"), raw.length("jobs:stream")) == (2, 1)
    tasks = {each["name"]: each for each in served.client.get("/v1/tasks").json()["tasks"]}
    assert (tasks[task]["queue"], tasks["chat"]["queue"]) == (queue, "default")
    lines = served.client.get("/v1/jobs").json()["jobs"]
    assert {line["task"]: line["queue"] for line in lines} == {task: queue, "chat": "default"}


@clause("J-53")
async def test_j53_the_six_tasks_are_always_in_the_default_queue(
    served: ServedJobs, lab: StreamsLab, fresh: Fresh
) -> None:
    queue = fresh("queue")
    await lab.worker("chat", queues=(queue,))
    assert served.submit("chat")["queue"] == "default"
    body: JsonObject = {"task": "chat", "payload": {}, "queue": queue}
    found = problem(served.client.post("/v1/jobs", json=body), 422, "unknown_queue")
    assert "always in the queue 'default'" in str(found["detail"])


@clause("J-53")
async def test_j53_of_several_registrations_the_newest_live_one_counts(
    served: ServedJobs, lab: StreamsLab, raw: Raw, fresh: Fresh
) -> None:
    task, old, new = fresh("task"), fresh("queue"), fresh("queue")
    first = await lab.worker(task, queues=(old,))
    assert submitted_to(served, task, old)
    started_ms = raw.now_ms()
    wait_until_sync(lambda: raw.now_ms() > started_ms)
    second = await lab.worker(task, queues=(new,))
    wait_until_sync(lambda: submitted_to(served, task, new), "the gateway to read it")
    await second.deregister()
    wait_until_sync(lambda: submitted_to(served, task, old), "the gateway to read it")
    await first.deregister()
    assert served.submit(task)["queue"] in (old, new), "known while no worker is live"


@clause("J-53")
async def test_j53_a_request_may_name_a_queue_that_exists(
    served: ServedJobs, lab: StreamsLab, fresh: Fresh
) -> None:
    task, queue, other = fresh("task"), fresh("queue"), fresh("queue")
    await lab.worker(task, queues=(queue, other))
    assert served.submit(task, queue=other)["queue"] == other
    assert served.submit(task, queue="default")["queue"] == "default"
    body: JsonObject = {"task": task, "payload": {}, "queue": fresh("queue")}
    problem(served.client.post("/v1/jobs", json=body), 422, "unknown_queue")
    batch = served.client.post("/v1/jobs/batch", json={"jobs": [body]})
    (result,) = batch.json()["results"]
    assert result["problem"]["code"] == "unknown_queue"
    for name in ("", "a b", "a:b", "é", "x" * 101, "-x", 5):
        problem(
            served.client.post("/v1/jobs", json={**body, "queue": name}), 422, "invalid_request"
        )


@clause("J-53")
async def test_j53_a_retried_job_stays_in_its_queue(
    served: ServedJobs, lab: StreamsLab, fresh: Fresh
) -> None:
    task, queue, other = fresh("task"), fresh("queue"), fresh("queue")
    worker = await lab.worker(task, queues=(queue, other))
    made = served.submit(task, queue=other)
    (leased,) = await worker.take(1)
    await worker.settle([(leased, Failed(JobError("broken", "it broke")))], 0)
    answer = served.client.post(f"/v1/jobs/{made['job_id']}/retry")
    assert answer.status_code == 202, answer.text
    assert answer.json()["queue"] == other


# ── payloads of jobs of other routes (J-54) ──────────────────────────────────────────────────────


async def accepts_named(lab: StreamsLab, task: str) -> StreamsEngine:
    engine = await lab.worker(task)
    await engine.register([TaskDefinition(task, NAMED)], 1)
    return engine


@clause("J-54")
async def test_j54_a_retry_is_checked_as_a_submission_is(
    served: ServedJobs, lab: StreamsLab, fresh: Fresh
) -> None:
    task = fresh("task")
    worker = await lab.worker(task)
    made = served.submit(task, {"n": 1})
    (leased,) = await worker.take(1)
    await worker.settle([(leased, Failed(JobError("broken", "it broke")))], 0)
    await worker.register([TaskDefinition(task, NAMED)], 1)
    path = f"/v1/jobs/{made['job_id']}/retry"
    wait_until_sync(
        lambda: served.client.post(path).status_code == 422, "the gateway to read the schema"
    )
    found = problem(served.client.post(path), 422, "invalid_payload")
    assert "name" in str(found["detail"])


@clause("J-54")
async def test_j54_a_job_of_an_openai_request_is_checked(
    served: ServedJobs, lab: StreamsLab, raw: Raw
) -> None:
    await accepts_named(lab, "chat")
    body: JsonObject = {"model": "default", "messages": [{"role": "user", "content": "hello"}]}
    wait_until_sync(
        lambda: (
            served.client.post("/v1/jobs", json={"task": "chat", "payload": {}}).status_code == 422
        ),
        "the gateway to read the schema",
    )
    before = raw.length("jobs:stream")
    answer = served.client.post("/v1/chat/completions", json=body)
    assert answer.status_code in (400, 422), answer.text
    assert "name" in answer.text
    assert raw.length("jobs:stream") == before


# ── administration ───────────────────────────────────────────────────────────────────────────────


@clause("J-53")
async def test_j53_the_queues_are_listed(
    served: ServedJobs, lab: StreamsLab, raw: Raw, fresh: Fresh
) -> None:
    task, queue = fresh("task"), fresh("queue")
    worker = await lab.worker(task, queues=(queue,))
    for _ in range(3):
        served.submit(task)
    (leased,) = await worker.take(1)
    served.submit(task, delay_s=600)
    found = queues(served)
    assert next(iter(found)) == "default"
    age_ms = found[queue].pop("oldest_waiting_ms")
    assert isinstance(age_ms, int)
    assert found[queue] == {
        "name": queue,
        "paused": False,
        "waiting": 2,
        "running": 1,
        "workers": 1,
    }
    assert found["default"]["workers"] == 0
    now = served.client.get("/v1/stats").json()["now"]
    assert (now["waiting"], now["running"], now["delayed"]) == (2, 1, 1)
    (listed,) = served.client.get("/v1/workers").json()["workers"]
    assert listed["queues"] == [queue]
    assert [slot["job_id"] for slot in listed["running"]] == [leased.job.id]
    metrics = served.client.get("/metrics").text
    assert f'jobwire_jobs{{queue="{queue}",state="waiting"}} 2.0' in metrics
    assert f'jobwire_jobs{{queue="{queue}",state="running"}} 1.0' in metrics
    assert 'jobwire_jobs{queue="",state="delayed"} 1.0' in metrics
    assert f'jobwire_jobs_oldest_waiting_seconds{{queue="{queue}"}}' in metrics
    await worker.settle([(leased, Done("1"))], 0)


@clause("J-53")
async def test_j53_a_queue_is_paused_resumed_and_purged_over_http(
    served: ServedJobs, lab: StreamsLab, fresh: Fresh
) -> None:
    task, queue = fresh("task"), fresh("queue")
    worker = await lab.worker(task, queues=(queue,))
    path = f"/v1/jobs/queues/{queue}"
    paused = served.client.post(f"{path}/pause")
    assert paused.json() == {"queue": queue, "paused": True, "warning": None}
    assert queues(served)[queue]["paused"] is True
    made = served.submit(task)
    assert await worker.take(1) == []
    resumed = served.client.post(f"{path}/resume")
    assert resumed.json() == {"queue": queue, "paused": False, "warning": None}
    assert queues(served)[queue]["paused"] is False
    assert served.client.post(f"{path}/purge").json() == {"queue": queue, "canceled": 1}
    with served.events(made["job_id"]) as reader:
        assert [event.name for event in reader.rest()] == ["hello", "queued", "canceled"]


@clause("J-53")
def test_j53_the_answer_about_the_default_queue_names_foreign_workers(served: ServedJobs) -> None:
    paused = served.client.post("/v1/jobs/queues/default/pause").json()
    assert "do not stop" in paused["warning"]
    served.client.post("/v1/jobs/queues/default/resume").raise_for_status()
    assert queues(served)["default"]["paused"] is False


@clause("J-53")
@pytest.mark.parametrize("name", ["nowhere", "a%3Ab", "x" * 101, "%00"])
@pytest.mark.parametrize("verb", ["pause", "resume", "purge"])
def test_j53_an_unknown_queue_is_not_found(
    served: ServedJobs, raw: Raw, name: str, verb: str
) -> None:
    answer = served.client.post(f"/v1/jobs/queues/{name}/{verb}")
    problem(answer, 404, "queue_not_found")
    assert raw.exists("jobs:paused") == 0


@clause("J-53", "J-57")
async def test_j53_changing_a_queue_needs_the_scope_admin(
    keyed: ServedJobs, lab: StreamsLab, raw: Raw, fresh: Fresh
) -> None:
    task, queue = fresh("task"), fresh("queue")
    await lab.worker(task, queues=(queue,))
    path = f"/v1/jobs/queues/{queue}"
    for verb in ("pause", "resume", "purge"):
        problem(keyed.client.post(f"{path}/{verb}", headers=bearer("acme")), 403, "forbidden")
    for verb in ("pause", "resume"):
        answer = keyed.client.post(f"{path}/{verb}", headers=bearer("acme-admin"))
        assert "shared by all tenants" in str(problem(answer, 403, "forbidden")["detail"])
    assert raw.exists("jobs:paused") == 0
    assert queue in queues(keyed, **bearer("acme-reader"))
    for verb in ("pause", "resume"):
        keyed.client.post(f"{path}/{verb}", headers=bearer("operator")).raise_for_status()

    body: JsonObject = {"task": task, "payload": {}}
    jobs = {
        name: keyed.client.post("/v1/jobs", json=body, headers=bearer(name)).json()["job_id"]
        for name in ("acme", "globex", "plain")
    }
    purged = keyed.client.post(f"{path}/purge", headers=bearer("acme-admin"))
    assert purged.json()["canceled"] == 1
    assert raw.field(f"job:{jobs['acme']}", "status") == "canceled"
    assert raw.field(f"job:{jobs['globex']}", "status") == "queued"
    purged = keyed.client.post(f"{path}/purge", headers=bearer("operator"))
    assert purged.json()["canceled"] == 2


# ── cron entries ─────────────────────────────────────────────────────────────────────────────────


@clause("J-52")
async def test_j52_an_entry_is_run_now_paused_and_resumed_for_the_whole_fleet(
    served: ServedJobs, lab: StreamsLab, raw: Raw, fresh: Fresh
) -> None:
    """Two schedulers; while the entry is paused a due time passes, which is not made up for."""
    name, queue, entry = fresh("nightly"), fresh("queue"), "UTC * * * * *"
    request = JobRequest("chat-like", '{"kind":"full"}')
    await lab.worker("chat-like", queues=(queue,))
    stores = [StreamsCronStore(lab.connection, lab.settings, {name: queue}) for _ in range(2)]
    for store in stores:
        await store.enroll(name, entry, request)

    def listed() -> JsonObject:
        crons = cast("list[JsonObject]", served.client.get("/v1/crons").json()["crons"])
        (found,) = [each for each in crons if each["name"] == name]
        return found

    assert listed()["paused"] is False
    made = served.client.post(f"/v1/crons/{name}/run")
    assert made.status_code == 202, made.text
    job = served.job(made.json()["job_id"])
    assert (job["task"], job["payload"], job["queue"]) == ("chat-like", {"kind": "full"}, queue)

    assert served.client.post(f"/v1/crons/{name}/pause").json() == {"name": name, "paused": True}
    assert listed()["paused"] is True
    due_ms = raw.now_ms()
    raw.call("HSET", f"jobs:cron:{name}", entry, f"{due_ms - 60_000} {due_ms}")
    for store in stores:
        assert await store.submit_due(name, entry, due_ms, request) == NotDue()
    assert raw.length(f"jobs:stream:{queue}") == 1, "only the job that was run by hand"
    resumed = served.client.post(f"/v1/crons/{name}/resume").json()
    assert resumed == {"name": name, "paused": False}
    for store in stores:
        assert await store.submit_due(name, entry, due_ms, request) == AlreadyRun()
    raw.call("HSET", f"jobs:cron:{name}", entry, f"{due_ms - 1} {due_ms}")
    answers = [await store.submit_due(name, entry, due_ms, request) for store in stores]
    assert isinstance(answers[0], Submitted)
    assert answers[1] == AlreadyRun()
    for verb in ("run", "pause", "resume"):
        problem(served.client.post(f"/v1/crons/{fresh('none')}/{verb}"), 404, "cron_not_found")
    assert served.client.post("/v1/jobs/queues/" + queue + "/purge").json()["canceled"] == 2
