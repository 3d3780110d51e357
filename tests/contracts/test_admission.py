"""J-11, J-57, O-6: limits and isolation of keys and tenants, over HTTP."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from typing import Final, cast

import httpx
import psutil
import pytest

from jobwire.gateway.settings import GatewaySettings, KeySettings
from jobwire.job.messages import JobRequest, Submitted
from jobwire.local import LocalValkey
from jobwire.systems.jobs.cron_store import StreamsCronStore
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection
from tests.support import Fresh, Plain, clause, wait_until, wait_until_sync
from tests.support.jobs_http import JsonObject, ServedJobs, bearer, key, problem
from tests.support.raw import Raw
from tests.support.servers import plain_client
from tests.support.streams import StreamsLab

BODY: Final[JsonObject] = {"task": "chat", "payload": {"prompt": "the secret"}}
KEYS: Final[tuple[KeySettings, ...]] = (
    key("plain", "submit", "read"),
    key("acme", "submit", "read", tenant="acme"),
    key("acme-submit", "submit", tenant="acme"),
    key("globex", "submit", "read", tenant="globex"),
    key("root", "admin", tenant="*"),
)


@pytest.fixture(scope="module")
def bounded(valkey: LocalValkey) -> Iterator[ServedJobs]:
    """A gateway with keys of several tenants and capacity for few jobs."""
    settings = StreamsSettings(max_queue=20, tenant_max_retained=30)
    with ServedJobs(valkey.url, settings, GatewaySettings(keys=KEYS)) as started:
        yield started


# ── J-11 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-11")
def test_j11_no_key_of_one_tenant_blocks_another(keyed: ServedJobs, fresh: Fresh) -> None:
    """Regression: a key of the default tenant could equal the stored name of another tenant's
    key."""
    name = fresh("order")
    for chosen in (
        hashlib.sha256(f"acme\0{name}".encode()).hexdigest(),
        f"jobs:idempotency:acme:{hashlib.sha256(name.encode()).hexdigest()}",
    ):
        forged = {**bearer("plain"), "idempotency-key": chosen}
        assert keyed.client.post("/v1/jobs", json=BODY, headers=forged).status_code == 202
    theirs = {**bearer("acme"), "idempotency-key": name}
    first = keyed.client.post("/v1/jobs", json=BODY, headers=theirs)
    assert first.status_code == 202, first.text
    again = keyed.client.post("/v1/jobs", json=BODY, headers=theirs)
    assert (again.status_code, again.json()["job_id"]) == (200, first.json()["job_id"])


@clause("J-11")
async def test_j11_keys_of_an_older_version_still_find_their_jobs(
    keyed: ServedJobs, lab: StreamsLab, raw: Raw, fresh: Fresh
) -> None:
    name = fresh("order")
    job_id = await lab.submit(tenant="acme")
    former = hashlib.sha256(f"acme\0{name}".encode()).hexdigest()
    raw.call("SET", f"idempotency:{former}", job_id, "EX", 600)
    theirs = {**bearer("acme"), "idempotency-key": name}
    again = keyed.client.post("/v1/jobs", json=BODY, headers=theirs)
    assert (again.status_code, again.json()["job_id"]) == (200, job_id)
    forged = {**bearer("plain"), "idempotency-key": former}
    problem(keyed.client.post("/v1/jobs", json=BODY, headers=forged), 409, "idempotency_mismatch")


@clause("J-11", "J-52")
async def test_j11_no_chosen_key_stops_a_cron_run(
    served: ServedJobs, connection: Connection, raw: Raw
) -> None:
    calendar = StreamsCronStore(connection)
    seen = await calendar.enroll("nightly", "times")
    due_ms = await wait_until(lambda: (now := raw.now_ms()) > seen.due_ms and now, "the next ms")
    for chosen in (f"cron:nightly:{due_ms}", f"jobs:cron-run:nightly:{due_ms}"):
        answer = served.client.post("/v1/jobs", json=BODY, headers={"idempotency-key": chosen})
        assert answer.status_code == 202
    made = await calendar.submit_due("nightly", "times", due_ms, JobRequest("chat", "{}"))
    assert isinstance(made, Submitted)
    assert raw.call("GET", f"jobs:cron-run:nightly:{due_ms}") == made.job_id


# ── J-57 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-57")
def test_j57_one_tenant_cannot_fill_the_queue(bounded: ServedJobs, plain: Plain) -> None:
    """Regression: batches of delayed jobs filled the queue of all tenants for thirty days."""
    batch = {"jobs": [{**BODY, "delay_s": 2_592_000}] * 20}
    headers = bearer("acme-submit")
    results = bounded.client.post("/v1/jobs/batch", json=batch, headers=headers).json()["results"]
    assert [result["status"] for result in results] == [202] * 10 + [429] * 10
    refused = bounded.client.post("/v1/jobs", json=BODY, headers=headers)
    assert "10 open jobs" in str(problem(refused, 429, "queue_full")["detail"])
    assert int(refused.headers["retry-after"]) >= 1
    assert bounded.client.post("/v1/jobs", json=BODY, headers=bearer("globex")).status_code == 202
    assert plain.zcard("jobs:delayed") == 10


@clause("J-57")
async def test_j57_ended_jobs_free_the_tenants_quota(bounded: ServedJobs, lab: StreamsLab) -> None:
    headers = bearer("acme")
    ids: list[str] = []
    for _ in range(10):
        answer = bounded.client.post("/v1/jobs", json=BODY, headers=headers)
        ids.append(answer.json()["job_id"])
    problem(bounded.client.post("/v1/jobs", json=BODY, headers=headers), 429, "queue_full")
    for job_id in ids[3:6]:
        canceled = bounded.client.post(f"/v1/jobs/{job_id}/cancel", headers=headers)
        assert canceled.status_code == 200
    made = 0
    while made < 3:  # it is recounted a few times a second
        answer = bounded.client.post("/v1/jobs", json=BODY, headers=headers)
        made += answer.status_code == 202
    problem(bounded.client.post("/v1/jobs", json=BODY, headers=headers), 429, "queue_full")


@clause("J-57")
def test_j57_a_tenant_keeps_a_bounded_number_of_jobs(bounded: ServedJobs) -> None:
    headers = bearer("acme")
    for _ in range(30):
        answer = bounded.client.post("/v1/jobs", json=BODY, headers=headers)
        assert answer.status_code == 202, answer.text
        job_id = answer.json()["job_id"]
        bounded.client.post(f"/v1/jobs/{job_id}/cancel", headers=headers)
    refused = bounded.client.post("/v1/jobs", json=BODY, headers=headers)
    assert "30 stored jobs" in str(problem(refused, 429, "queue_full")["detail"])
    assert bounded.client.post("/v1/jobs", json=BODY, headers=bearer("globex")).status_code == 202


@clause("J-57")
def test_j57_one_tenant_alone_has_the_whole_queue(valkey: LocalValkey, plain: Plain) -> None:
    keys = GatewaySettings(keys=(key("only", "submit", tenant="acme"), KEYS[-1]))
    with ServedJobs(valkey.url, StreamsSettings(max_queue=20), keys) as served:
        batch = {"jobs": [BODY] * 21}
        answer = served.client.post("/v1/jobs/batch", json=batch, headers=bearer("only"))
    assert [result["status"] for result in answer.json()["results"]] == [202] * 20 + [429]
    assert not plain.exists("jobs:open:acme")


@clause("J-57")
def test_j57_a_batch_counts_its_jobs_against_the_rate(valkey: LocalValkey) -> None:
    settings = GatewaySettings(keys=KEYS, submit_rate=1)
    with ServedJobs(valkey.url, gateway=settings) as served:
        batch = {"jobs": [BODY] * 100}
        assert served.client.post("/v1/jobs/batch", json=batch, headers=bearer("acme")).is_success
        refused = served.client.post("/v1/jobs", json=BODY, headers=bearer("acme"))
        problem(refused, 429, "rate_limited")
        assert int(refused.headers["retry-after"]) >= 75
        assert served.client.post("/v1/jobs", json=BODY, headers=bearer("globex")).is_success


@clause("J-57")
def test_j57_a_job_canceled_while_waiting_expires_soon(
    served: ServedJobs, raw: Raw, fresh: Fresh
) -> None:
    """Regression: each submit and cancel left a job for up to 30 days."""
    chosen = fresh("key")
    long = {**BODY, "ttl_s": 2_592_000, "delay_s": 2_592_000}
    made = served.client.post("/v1/jobs", json=long, headers={"idempotency-key": chosen}).json()
    assert served.client.delete(f"/v1/jobs/{made['job_id']}").status_code == 200
    job = f"job:{made['job_id']}"
    for name in (job, f"{job}:events", f"idempotency:{chosen}"):
        assert 0 < raw.ttl_s(name) <= 300, name
    short = served.submit(ttl_s=60)
    served.client.delete(f"/v1/jobs/{short['job_id']}")
    assert 0 < raw.ttl_s(f"job:{short['job_id']}") <= 60


@clause("J-57", "J-12")
def test_j57_submissions_stop_before_the_server_is_full(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A full server cannot store reports either, so the last tenth of its memory is not for new
    jobs."""
    folder = tmp_path_factory.mktemp("small")
    with (
        # Without its log, whose buffer counts as memory for a moment.
        LocalValkey(folder, extra=["maxmemory 20mb", "appendonly no"], admin=True) as small,
        ServedJobs(small.url) as served,
    ):
        first = served.submit()
        body = {"jobs": [{"task": "chat", "payload": {"text": "x" * 200_000}}] * 5}

        def refusal() -> httpx.Response | None:
            answer = served.client.post("/v1/jobs/batch", json=body)
            if answer.is_success:
                # Between two checks of the gateway the server itself may refuse.
                results = answer.json()["results"]
                assert {result["status"] for result in results} <= {202, 503}
                return None
            # Its buffers may have counted as memory of the server for a moment.
            answer = served.client.post("/v1/jobs", json=BODY)
            return answer if "memory" in answer.text else None

        answer = wait_until_sync(refusal, "a refusal of a small job, too")
        assert answer is not None
        problem(answer, 503, "unavailable")
        ready = served.client.get("/readyz").json()
        assert ready["status"] == "degraded"
        assert "memory" in next(part for part in ready["parts"] if part["name"] == "memory")["note"]
        # The server is asked for its memory once a second, not once a submission.
        with plain_client(small) as plain:
            plain.config_resetstat()
            began_s = time.monotonic()
            for _ in range(20):
                refused = problem(served.client.post("/v1/jobs", json=BODY), 503, "unavailable")
                assert "memory" in str(refused["detail"]), "also between two readings"
            asked = plain.info("commandstats").get("cmdstat_info", {"calls": 0})["calls"]
            assert asked <= time.monotonic() - began_s + 2
        assert served.job(first["job_id"])["status"] == "queued"
        assert served.client.delete(f"/v1/jobs/{first['job_id']}").status_code == 200


LARGE: Final[JsonObject] = {"task": "chat", "payload": {"text": "x" * 100_000}}


@pytest.fixture(scope="module")
def in_bytes(valkey: LocalValkey) -> Iterator[ServedJobs]:
    """A gateway with keys of several tenants, each with space for four large jobs."""
    settings = StreamsSettings(tenant_max_bytes=900_000)
    with ServedJobs(valkey.url, settings, GatewaySettings(keys=KEYS)) as started:
        yield started


def fill(served: ServedJobs, **more: int) -> list[str]:
    """Submit large jobs until they are refused; the ids of those that were not."""
    made: list[str] = []
    while len(made) < 10:
        answer = served.client.post("/v1/jobs", json={**LARGE, **more}, headers=bearer("acme"))
        if answer.status_code == 429:
            assert "bytes" in str(problem(answer, 429, "queue_full")["detail"])
            break
        made.append(answer.json()["job_id"])
    return made


def is_accepted(served: ServedJobs) -> bool:
    answer = served.client.post("/v1/jobs", json=LARGE, headers=bearer("acme"))
    return answer.status_code == 202


@clause("J-57")
def test_j57_one_tenant_cannot_fill_the_memory(in_bytes: ServedJobs) -> None:
    """Regression: one key filled 300 MB in 19 s, and every other tenant got 503."""
    assert len(fill(in_bytes)) == 4
    batch = {"jobs": [LARGE, BODY]}
    answer = in_bytes.client.post("/v1/jobs/batch", json=batch, headers=bearer("acme"))
    assert [result["status"] for result in answer.json()["results"]] == [429, 202]
    other = in_bytes.client.post("/v1/jobs", json=LARGE, headers=bearer("globex"))
    assert other.status_code == 202


@clause("J-57")
def test_j57_expired_jobs_leave_the_bytes_of_their_tenant(in_bytes: ServedJobs) -> None:
    """Also those that a tenant canceled: they expire earlier than they were to."""
    for job_id in fill(in_bytes, ttl_s=1):
        in_bytes.client.delete(f"/v1/jobs/{job_id}", headers=bearer("acme"))
    wait_until_sync(lambda: is_accepted(in_bytes), "the bytes of the expired jobs to be free")


@clause("J-57", "J-7")
async def test_j57_a_job_that_waits_longer_than_its_ttl_stays_counted(
    in_bytes: ServedJobs, lab: StreamsLab, raw: Raw
) -> None:
    """Regression: a waiting job is extended, so a ttl of a second was no bound at all."""
    assert len(fill(in_bytes, ttl_s=600)) == 4
    for _ in range(4):
        raw.let_pass(400)
        assert await lab.maintain("extend_ttl") == 4
    assert not is_accepted(in_bytes)


@clause("J-57")
def test_j57_a_tenant_has_a_quarter_of_the_memory_by_default(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("quarter")
    with (
        LocalValkey(folder, extra=["maxmemory 20mb"]) as small,
        ServedJobs(small.url, gateway=GatewaySettings(keys=KEYS)) as served,
    ):
        batch = {"jobs": [LARGE] * 60}
        answer = served.client.post("/v1/jobs/batch", json=batch, headers=bearer("acme"))
        statuses = [result["status"] for result in answer.json()["results"]]
        assert statuses.count(202) == (5 << 20) // 201_000
        assert served.client.get("/readyz").json()["status"] == "ready"


@clause("J-57", "O-6")
def test_j57_an_admin_of_all_tenants_sees_and_cancels_their_jobs(
    bounded: ServedJobs, fresh: Fresh
) -> None:
    made = bounded.client.post("/v1/jobs", json=BODY, headers=bearer("acme")).json()
    path = f"/v1/jobs/{made['job_id']}"
    problem(bounded.client.get(path, headers=bearer("globex")), 404, "job_not_found")
    seen = bounded.client.get(path, headers=bearer("root")).json()
    assert {**seen, "durability": made["durability"]} == made
    listed = bounded.client.get("/v1/jobs?tenant=acme", headers=bearer("root")).json()["jobs"]
    assert made["job_id"] in [job["job_id"] for job in listed]
    mine = bounded.client.get("/v1/jobs?tenant=acme", headers=bearer("globex"))
    problem(mine, 403, "forbidden")
    assert bounded.client.delete(path, headers=bearer("root")).status_code == 200
    again = bounded.client.post(f"{path}/retry", headers=bearer("root")).json()
    seen = bounded.client.get(f"/v1/jobs/{again['job_id']}", headers=bearer("acme"))
    assert seen.json()["retry_of"] == made["job_id"]


@clause("J-57", "O-6")
def test_j57_a_key_without_read_gets_no_content(bounded: ServedJobs, lab: StreamsLab) -> None:
    """Regression: `POST …/retry` with `Prefer: wait` showed the payload of any job of the
    tenant."""
    made = bounded.client.post("/v1/jobs", json=BODY, headers=bearer("acme")).json()
    path = f"/v1/jobs/{made['job_id']}"
    bounded.client.delete(path, headers=bearer("acme"))
    submit_only = {**bearer("acme-submit"), "idempotency-key": "once"}
    waiting = {**submit_only, "prefer": "wait=1"}
    answers = [
        bounded.client.post(f"{path}/retry", headers=bearer("acme-submit")),
        bounded.client.post(f"{path}/retry", headers=waiting),
        bounded.client.post(f"{path}/retry", headers=submit_only),
        bounded.client.post("/v1/jobs", json=BODY, headers=bearer("acme-submit")),
        bounded.client.post(
            "/v1/jobs", json=BODY, headers={**bearer("acme-submit"), "prefer": "wait=1"}
        ),
    ]
    for answer in answers:
        assert answer.is_success, answer.text
        assert "the secret" not in answer.text
        assert not {"payload", "result", "error", "progress"} & answer.json().keys()
        assert answer.json()["status"] == "queued"
    whole = bounded.client.post(f"{path}/retry", headers=bearer("acme")).json()
    assert whole["payload"] == BODY["payload"]


@clause("J-57")
def test_j57_the_embedded_server_has_a_quarter_of_the_memory(raw: Raw) -> None:
    """Without a limit it would use all memory of the machine before it refuses a write."""
    found = cast("dict[str, str]", raw.call("CONFIG", "GET", "maxmemory*"))
    assert 0 < int(found["maxmemory"]) <= psutil.virtual_memory().total // 4
    assert found["maxmemory-policy"] == "noeviction"
