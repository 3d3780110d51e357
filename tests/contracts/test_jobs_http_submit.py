"""J-10, J-11, J-12, J-18: submitting over HTTP, and what it leaves on the wire."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import cast

import jsonschema
import pytest

from jobwire.job.messages import Done, TaskDefinition
from jobwire.local import LocalValkey
from jobwire.systems.jobs import contract
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.settings import StreamsSettings
from tests.support import Fresh, Proxy, clause, wait_until, wait_until_sync
from tests.support.jobs_http import JsonObject, ServedJobs, bearer, problem
from tests.support.raw import Raw, Recording
from tests.support.servers import plain_client
from tests.support.streams import StreamsLab

BODY = '{"task":"chat", "payload": {"prompt": "a tiny story",  "n": 12345678901234567890123}}'
PAYLOAD = '{"prompt": "a tiny story",  "n": 12345678901234567890123}'
JSON = {"content-type": "application/json"}


# ── J-10 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-10", "J-8")
def test_j10_a_submission_is_one_script_in_contract_order(served: ServedJobs, raw: Raw) -> None:
    with Recording(raw) as seen:
        answer = served.client.post("/v1/jobs", content=BODY, headers=JSON)
    job = answer.json()
    job_id = job["job_id"]
    assert (answer.status_code, answer.headers["location"]) == (202, f"/v1/jobs/{job_id}")

    assert seen.scripts == 1
    keys = (f"job:{job_id}", f"job:{job_id}:events", "jobs:stream")
    order = [line.split(" ")[:2] for line in seen.on(*keys) if line.startswith(("HSET", "XADD"))]
    hash_key, events_key, queue_key = keys
    assert order[:3] == [["HSET", hash_key], ["XADD", events_key], ["XADD", queue_key]]

    ((entry, fields),) = raw.entries("jobs:stream")
    assert fields == {"job_id": job_id, "task": "chat", "payload": PAYLOAD}
    ((_, event),) = raw.entries(f"job:{job_id}:events")
    created = raw.field(f"job:{job_id}", "created_ts")
    assert event == {"type": "queued", "ts": created, "step": "gateway.enqueue", "data": "{}"}
    assert raw.fields(f"job:{job_id}") == {
        "job_id": job_id,
        "task": "chat",
        "payload": PAYLOAD,
        "status": "queued",
        "created_ts": str(job["created_ts"]),
        "updated_ts": str(job["updated_ts"]),
        "ttl_s": "86400",
        "result": "",
        "error": "",
        "entry_id": entry,
    }
    assert raw.ttl_s(f"job:{job_id}") > 86_000
    assert raw.ttl_s(f"job:{job_id}:events") > 86_000


@clause("J-10")
def test_j10_the_response_equals_that_of_a_later_get(served: ServedJobs) -> None:
    made = served.submit(ttl_s=600, max_attempts=3, timeout_s=2.5)
    assert made.pop("durability") == "memory"
    assert made == served.job(made["job_id"])
    assert (made["ttl_s"], made["max_attempts"], made["timeout_s"]) == (600, 3, 2.5)


@clause("J-10")
def test_j10_a_delayed_job_is_not_in_the_queue(served: ServedJobs, raw: Raw) -> None:
    made = served.submit(delay_s=600)
    assert raw.members("jobs:delayed") == [made["job_id"]]
    assert raw.length("jobs:stream") == 0


@clause("J-10")
def test_j10_the_traceparent_is_stored_with_the_job(served: ServedJobs, raw: Raw) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for given, kept in ((trace, trace), ("nonsense", None)):
        headers = {**JSON, "traceparent": given}
        job_id = served.client.post("/v1/jobs", content=BODY, headers=headers).json()["job_id"]
        assert raw.field(f"job:{job_id}", "traceparent") == kept


@clause("J-10")
async def test_j10_a_task_is_known_by_contract_settings_or_worker(
    served: ServedJobs, lab: StreamsLab, valkey: LocalValkey, fresh: Fresh
) -> None:
    task = fresh("task")
    body: JsonObject = {"task": task, "payload": {}}
    refusal = problem(served.client.post("/v1/jobs", json=body), 422, "unknown_task")
    assert task in str(refusal["detail"])

    await lab.worker(task)
    assert served.client.post("/v1/jobs", json=body).status_code == 202

    setting = StreamsSettings(tasks=("later",))
    with ServedJobs(valkey.url, setting) as other:
        other.submit("later")


@clause("J-10", "J-37")
async def test_j37_a_task_is_known_while_its_only_worker_is_down(
    served: ServedJobs, lab: StreamsLab, fresh: Fresh
) -> None:
    task = fresh("task")
    worker = await lab.worker(task)
    await worker.deregister()
    job_id = served.submit(task)["job_id"]
    (listed,) = (t for t in served.client.get("/v1/tasks").json()["tasks"] if t["name"] == task)
    assert listed["live"] is False

    restarted = await lab.worker(task)
    (leased,) = await restarted.take(1)
    assert leased.job.id == job_id


@clause("J-10")
async def test_j10_an_unknown_task_is_refused_with_the_nearest_known_name(
    served: ServedJobs, lab: StreamsLab
) -> None:
    await lab.worker("resize_image")
    for task, meant in (("resize_imag", "resize_image"), ("chta", "chat")):
        body: JsonObject = {"task": task, "payload": {}}
        found = problem(served.client.post("/v1/jobs", json=body), 422, "unknown_task")
        assert f"did you mean '{meant}'?" in str(found["detail"])


@clause("J-37")
async def test_j37_a_task_without_workers_is_removed_after_30_days(
    lab: StreamsLab, raw: Raw
) -> None:
    recent, old = await lab.worker("recent"), await lab.worker("old")
    for worker in (recent, old):
        await worker.deregister()
    # Its last heartbeat was 31 days ago.
    text = raw.field("jobs:tasks", "old") or ""
    seen_ts = json.loads(text)["seen_ts"]
    aged = text.replace(str(seen_ts), str(seen_ts - 31 * 86_400_000), 1)
    raw.call("HSET", "jobs:tasks", "old", aged)
    assert await lab.maintain("forget_tasks") == 1
    assert list(raw.fields("jobs:tasks")) == ["recent"]


@clause("J-10")
async def test_j10_of_several_workers_the_one_that_started_last_describes_a_task(
    lab: StreamsLab, raw: Raw
) -> None:
    def described() -> object:
        return json.loads(raw.field("jobs:tasks", "resize") or "{}")["schema"]

    patient, impatient = await _described(lab, "1"), await _described(lab, "1", 0.05)
    begun_ms = raw.now_ms()
    await wait_until(lambda: raw.now_ms() > begun_ms, "the last to start later")
    last = await _described(lab, "2")
    assert described() == 2
    await _heartbeat(patient)
    assert described() == 2, "the older worker does not describe it again"

    await last.deregister()

    async def describes() -> bool:
        await _heartbeat(impatient)
        return described() == 1

    await wait_until(describes, "the remaining worker to describe it")
    for worker in (patient, impatient):
        await worker.deregister()


async def _described(lab: StreamsLab, schema_json: str, heartbeat_s: float = 10) -> StreamsEngine:
    """A worker whose task `resize` has this schema."""
    engine = StreamsEngine(lab.connection, replace(lab.settings, heartbeat_s=heartbeat_s))
    await engine.register([TaskDefinition("resize", schema_json)], 1)
    return engine


async def _heartbeat(engine: StreamsEngine) -> None:
    await next(task for task in engine.maintenance() if task.name == "heartbeat").run()


@clause("J-10")
async def test_j10_tasks_are_listed_with_schema_example_and_availability(
    served: ServedJobs, lab: StreamsLab
) -> None:
    def listed() -> dict[str, JsonObject]:
        tasks = served.client.get("/v1/tasks").json()["tasks"]
        return {task["name"]: task for task in tasks}

    assert list(listed()) == list(contract.SOURCE_TASKS)
    for task in listed().values():
        jsonschema.validate(task["example"], cast(JsonObject, task["schema"]))
        assert served.submit(str(task["name"]), task["example"])
        assert task["live"] is False

    await lab.worker("embed", "zebra")
    found = listed()
    assert list(found) == [*contract.SOURCE_TASKS, "zebra"]
    assert [name for name, task in found.items() if task["live"]] == ["embed", "zebra"]
    assert found["zebra"]["schema"] is None
    assert found["embed"]["example"] is not None


@clause("J-10")
def test_j10_a_workers_task_definition_applies(served: ServedJobs, raw: Raw, fresh: Fresh) -> None:
    task = fresh("task")
    raw.call("XGROUP", "CREATE", "jobs:stream", "workers", "0", "MKSTREAM")
    raw.call("XGROUP", "CREATECONSUMER", "jobs:stream", "workers", "jobwire-me")
    info = {"schema": {"type": "object"}, "example": {"n": 1}}
    raw.write("jobs:worker:jobwire-me", {f"task:{task}": json.dumps(info), "task:bad": "{"})
    tasks = {each["name"]: each for each in served.client.get("/v1/tasks").json()["tasks"]}
    found = {"live": True, "queue": "default", "workers": 1, "queues": ["default"]}
    assert tasks[task] == {"name": task, **found, **info}
    bad = {"name": "bad", **found, "schema": None, "example": None}
    assert tasks["bad"] == bad


@clause("J-10")
async def test_j10_tasks_of_an_emptied_server_are_unavailable_until_workers_register_again(
    valkey: LocalValkey, lab: StreamsLab, raw: Raw
) -> None:
    await lab.worker("sing")
    with ServedJobs(valkey.url) as served:
        body: JsonObject = {"task": "sing", "payload": {}}
        assert served.client.post("/v1/jobs", json=body).status_code == 202
        raw.call("FLUSHALL")
        wrong: JsonObject = {"task": "dance", "payload": {}}
        problem(served.client.post("/v1/jobs", json=wrong), 422, "unknown_task")
        answer = served.client.post("/v1/jobs", json=body)
        problem(answer, 503, "unavailable")
        assert "emptied" in answer.json()["detail"]
        assert int(answer.headers["retry-after"]) > 0
        problem(served.client.post("/v1/jobs", json=wrong), 422, "unknown_task")
        await lab.worker("sing")
        wait_until_sync(lambda: served.client.post("/v1/jobs", json=body).status_code == 202)


# ── J-11 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-11", "R-6")
def test_j11_a_repeated_request_returns_the_first_job(
    served: ServedJobs, raw: Raw, fresh: Fresh
) -> None:
    key = fresh("key")
    headers = {**JSON, "idempotency-key": key}
    first = served.client.post("/v1/jobs", content=BODY, headers=headers)
    again = served.client.post("/v1/jobs", content=BODY, headers=headers)
    assert (first.status_code, again.status_code) == (202, 200)
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["location"] == first.headers["location"]
    assert first.json() == again.json()
    assert raw.call("GET", f"idempotency:{key}") == first.json()["job_id"]
    assert raw.length("jobs:stream") == 1
    fingerprint = hashlib.sha256(BODY.encode()).hexdigest()
    assert raw.field(f"job:{first.json()['job_id']}", "fingerprint") == fingerprint


@clause("J-11")
def test_j11_another_body_under_the_same_key_is_refused(
    served: ServedJobs, raw: Raw, fresh: Fresh
) -> None:
    headers = {**JSON, "idempotency-key": fresh("key")}
    assert served.client.post("/v1/jobs", content=BODY, headers=headers).status_code == 202
    answer = served.client.post("/v1/jobs", content=BODY + " ", headers=headers)
    problem(answer, 409, "idempotency_mismatch")
    assert raw.length("jobs:stream") == 1


@clause("J-11", "R-6")
def test_j11_fifty_racing_requests_make_one_job(served: ServedJobs, raw: Raw, fresh: Fresh) -> None:
    headers = {**JSON, "idempotency-key": fresh("key")}

    def post(_: int) -> tuple[int, str]:
        answer = served.client.post("/v1/jobs", content=BODY, headers=headers)
        return answer.status_code, answer.json()["job_id"]

    with ThreadPoolExecutor(25) as pool:
        answers = list(pool.map(post, range(50)))
    assert len({job_id for _, job_id in answers}) == 1
    assert sorted(status for status, _ in answers) == [200] * 49 + [202]
    assert raw.length("jobs:stream") == 1


@clause("J-11")
def test_j11_a_key_of_an_expired_job_creates_a_new_job(
    served: ServedJobs, raw: Raw, fresh: Fresh
) -> None:
    headers = {**JSON, "idempotency-key": fresh("key")}
    first = served.client.post("/v1/jobs", content=BODY, headers=headers).json()
    raw.delete(f"job:{first['job_id']}", f"job:{first['job_id']}:events")
    again = served.client.post("/v1/jobs", content=BODY, headers=headers)
    assert again.status_code == 202
    assert again.json()["job_id"] != first["job_id"]


@clause("J-11")
def test_j11_a_foreign_gateways_job_has_no_fingerprint_and_counts_as_the_same(
    served: ServedJobs, raw: Raw, fresh: Fresh
) -> None:
    key, job_id = fresh("key"), fresh("job")
    raw.write(f"job:{job_id}", {"job_id": job_id, "task": "chat", "status": "queued"})
    raw.call("SET", f"idempotency:{key}", job_id, "EX", 600)
    headers = {**JSON, "idempotency-key": key}
    answer = served.client.post("/v1/jobs", content=BODY, headers=headers)
    assert (answer.status_code, answer.json()["job_id"]) == (200, job_id)


@clause("J-11", "O-6")
def test_j11_keys_of_tenants_are_separate(keyed: ServedJobs, raw: Raw, fresh: Fresh) -> None:
    key = fresh("key")
    made: dict[str, str] = {}
    for name in ("plain", "acme", "globex"):
        headers = {**JSON, **bearer(name), "idempotency-key": key}
        answer = keyed.client.post("/v1/jobs", content=BODY, headers=headers)
        assert answer.status_code == 202
        made[name] = answer.json()["job_id"]
    assert len(set(made.values())) == 3
    assert raw.call("GET", f"idempotency:{key}") == made["plain"]
    hashed = hashlib.sha256(key.encode()).hexdigest()
    assert raw.call("GET", f"jobs:idempotency:acme:{hashed}") == made["acme"]


@clause("J-11", "J-19")
@pytest.mark.parametrize("wrong", [b"", b"x" * 256, b"caf\xe9", b"tab\there"])
def test_j11_an_invalid_key_is_refused(served: ServedJobs, raw: Raw, wrong: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"idempotency-key", wrong)]
    answer = served.client.post("/v1/jobs", content=BODY, headers=headers)
    problem(answer, 400, "bad_idempotency_key")
    assert raw.length("jobs:stream") == 0


# ── J-12 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-12")
def test_j12_a_full_queue_refuses_with_retry_after(valkey: LocalValkey, raw: Raw) -> None:
    with ServedJobs(valkey.url, StreamsSettings(max_queue=2)) as small:
        small.submit()
        small.submit(delay_s=600)
        before = raw.find()
        answer = small.client.post("/v1/jobs", content=BODY, headers=JSON)
        problem(answer, 429, "queue_full")
        assert int(answer.headers["retry-after"]) >= 1
        assert raw.find() == before


@clause("J-12")
@pytest.mark.parametrize(("name", "value"), [("maxmemory", "1"), ("min-replicas-to-write", "1")])
def test_j12_a_server_that_cannot_write_is_unavailable(
    valkey: LocalValkey,
    raw: Raw,
    server_setting: Callable[[str, str], None],
    name: str,
    value: str,
) -> None:
    """Out of memory, or (as on a replica, or a primary cut off from its replicas) read-only."""
    with ServedJobs(valkey.url) as own:
        before = raw.find()
        server_setting(name, value)
        answer = own.client.post("/v1/jobs", content=BODY, headers=JSON)
        problem(answer, 503, "unavailable")
        assert int(answer.headers["retry-after"]) >= 1
        assert raw.find() == before


@clause("J-12")
def test_j12_a_submission_to_a_replica_is_refused(
    own_valkey: LocalValkey, valkey: LocalValkey
) -> None:
    with ServedJobs(own_valkey.url) as served:
        with plain_client(own_valkey) as admin:
            admin.call("REPLICAOF", "127.0.0.1", valkey.port)
            answer = served.client.post("/v1/jobs", content=BODY, headers=JSON)
            problem(answer, 503, "unavailable")
            admin.call("REPLICAOF", "NO", "ONE")
        wait_until_sync(
            lambda: served.client.post("/v1/jobs", content=BODY, headers=JSON).status_code == 202,
            "a primary again",
        )


# ── J-18 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-18")
def test_j18_each_of_a_batch_has_its_own_answer(served: ServedJobs, raw: Raw, fresh: Fresh) -> None:
    key = fresh("key")
    good: JsonObject = {"task": "chat", "payload": {"n": 1}, "idempotency_key": key}
    jobs: list[object] = [
        good,
        good,
        {**good, "payload": {"n": 2}},
        {"task": "no-such-task", "payload": {}},
        {"task": "chat", "payload": []},
        {"task": "chat", "payload": {}, "surprise": 1},
        {"task": "chat", "payload": {}, "idempotency_key": "\n"},
        7,
        {"task": "chat", "payload": {}, "ttl_s": 60},
    ]
    answer = served.client.post("/v1/jobs/batch", json={"jobs": jobs})
    assert answer.status_code == 200
    results = answer.json()["results"]
    codes = [(result["status"], result.get("problem", {}).get("code")) for result in results]
    assert codes == [
        (202, None),
        (200, None),
        (409, "idempotency_mismatch"),
        (422, "unknown_task"),
        (422, "invalid_payload"),
        (422, "invalid_request"),
        (422, "invalid_request"),
        (422, "invalid_request"),
        (202, None),
    ]
    assert results[1] == {
        "status": 200,
        "job_id": results[0]["job_id"],
        "replayed": True,
        "durability": "memory",
    }
    assert results[5]["problem"]["request_id"] == answer.headers["x-request-id"]
    waiting = [fields["job_id"] for _, fields in raw.entries("jobs:stream")]
    assert waiting == [results[0]["job_id"], results[8]["job_id"]]
    assert raw.field(f"job:{results[8]['job_id']}", "ttl_s") == "60"


@clause("J-18")
def test_j18_a_thousand_jobs_take_one_round_trip(valkey: LocalValkey, proxy: Proxy) -> None:
    """All commands are sent before the first reply."""
    with ServedJobs(proxy.url(valkey.url)) as served, ThreadPoolExecutor(1) as pool:
        served.submit()
        proxy.forget_seen()
        proxy.silence()
        jobs = [{"task": "chat", "payload": {"n": number}} for number in range(1000)]
        asked = pool.submit(served.client.post, "/v1/jobs/batch", json={"jobs": jobs})

        def sent() -> int:
            return sum(call.words.count("chat") for call in proxy.seen("EVALSHA"))

        wait_until_sync(lambda: sent() == 1000, "all of them")
        assert not asked.done()
        proxy.accept()
        proxy.cut()
        results = asked.result(30).json()["results"]
        assert {result["status"] for result in results} == {503}
        assert {result["problem"]["code"] for result in results} == {"unavailable"}


@clause("J-18", "J-19")
@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"[]", 422, "invalid_request"),
        (b'{"jobs": []}', 422, "invalid_request"),
        (b'{"jobs": {}}', 422, "invalid_request"),
        (b'{"jobs": [{}], "jobs": [{}]}', 422, "invalid_request"),
        (b'{"jobs": [%s]}' % b",".join([b"{}"] * 1001), 422, "invalid_request"),
        (b'{"jobs": [{]}', 400, "invalid_json"),
        (b" " * (8 << 20) + b"{}", 413, "too_large"),
    ],
)
def test_j18_an_invalid_batch_is_refused_as_a_whole(
    served: ServedJobs, raw: Raw, body: bytes, status: int, code: str
) -> None:
    problem(served.client.post("/v1/jobs/batch", content=body, headers=JSON), status, code)
    assert raw.length("jobs:stream") == 0


# ── together ─────────────────────────────────────────────────────────────────────────────────────


@clause("J-10", "J-13", "J-31")
async def test_j10_a_job_over_http_runs_and_its_result_is_read(
    served: ServedJobs, lab: StreamsLab
) -> None:
    worker = await lab.worker("chat")
    made = served.submit(payload={"prompt": "hi"})
    (leased,) = await worker.take(1)
    assert leased.job.payload == {"prompt": "hi"}
    await worker.settle([(leased, Done('{"text": "hello"}'))], 0)
    job = served.job(made["job_id"])
    assert (job["status"], job["result"], job["worker"]) == (
        "done",
        {"text": "hello"},
        worker.consumer,
    )
