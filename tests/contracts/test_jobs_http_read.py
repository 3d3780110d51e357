"""J-13, J-14, J-16: reading, listing, cancelling and retrying over HTTP."""

from __future__ import annotations

import asyncio
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from jobwire.job.messages import Canceled, Done, Failed, JobError, LeasedJob, Report
from jobwire.local import LocalValkey
from jobwire.systems.jobs.engine import StreamsEngine
from tests.support import Fresh, Proxy, clause, wait_until, wait_until_sync
from tests.support.jobs_http import JsonObject, ServedJobs, bearer, problem
from tests.support.raw import Raw
from tests.support.streams import StreamsLab

ERROR = JobError("no_such_city", "there is no city of that name")


async def leased_job(served: ServedJobs, lab: StreamsLab) -> tuple[StreamsEngine, LeasedJob]:
    """A job that was submitted over HTTP and is running with a worker of ours."""
    worker = await lab.worker("chat")
    served.submit()
    (leased,) = await worker.take(1)
    return worker, leased


def foreign_job(raw: Raw, job_id: str, **fields: str) -> None:
    """A job as a gateway writes it that implements the published contract only."""
    plain = {
        "job_id": job_id,
        "task": "chat",
        "payload": "{}",
        "status": "queued",
        "created_ts": "1700000000000",
        "updated_ts": "1700000000001",
        "ttl_s": "600",
        "result": "",
        "error": "",
    }
    raw.write(f"job:{job_id}", {**plain, **fields})


# ── J-13 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-13")
async def test_j13_a_job_is_read_as_json_values(served: ServedJobs, lab: StreamsLab) -> None:
    worker, leased = await leased_job(served, lab)
    await worker.report([(leased, Report("progress", '{"percent":50,"message":"half"}'))])
    job = served.job(leased.job.id)
    assert (job["status"], job["worker"]) == ("running", worker.consumer)
    assert job["progress"] == {"percent": 50, "message": "half"}
    assert (job["result"], job["error"], job["retry_of"]) == (None, None, None)
    for name in ("created_ts", "started_ts", "updated_ts", "ttl_s", "attempt"):
        assert isinstance(job[name], int), name

    await worker.settle([(leased, Failed(ERROR))], 0)
    failed = served.job(leased.job.id)
    assert failed["status"] == "error"
    assert failed["error"] == {
        "code": "no_such_city",
        "message": "there is no city of that name",
        "retryable": False,
        "attempt": 1,
    }


@clause("J-13", "J-15")
async def test_j13_head_returns_the_headers_of_get(served: ServedJobs, lab: StreamsLab) -> None:
    worker, leased = await leased_job(served, lab)
    await worker.settle([(leased, Done('"hello"'))], 0)
    path = f"/v1/jobs/{leased.job.id}"
    with served.events(leased.job.id) as events:
        ended = events.rest()[-1].id
    same = {"x-request-id": "same"}
    for asked in (path, "/v1/jobs?limit=1", f"{path}/events?last_event_id={ended}", f"{path}0"):
        got, head = (
            served.client.request(method, asked, headers=same) for method in ("GET", "HEAD")
        )
        for answer in (got, head):
            del answer.headers["date"]  # a second may pass between them
        assert (head.status_code, head.headers) == (got.status_code, got.headers), asked
        assert head.content == b""
    stream = served.client.head(f"{path}/events")
    assert stream.status_code == 200
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"


@clause("J-13", "J-8")
def test_j13_numbers_come_back_as_they_were_sent(served: ServedJobs) -> None:
    body = '{"task":"chat","payload":{"big":123456789012345678901234567890,"exact":0.10}}'
    answer = served.client.post(
        "/v1/jobs", content=body, headers={"content-type": "application/json"}
    )
    text = served.client.get(answer.headers["location"]).text
    assert '"payload":{"big":123456789012345678901234567890,"exact":0.10}' in text


@clause("J-13")
def test_j13_foreign_fields_are_shown(served: ServedJobs, raw: Raw, fresh: Fresh) -> None:
    job_id = fresh("job")
    foreign_job(raw, job_id, payload="no json", result="[1", error="boom", ttl_s="soon")
    job = served.job(job_id)
    assert job["payload"] == {"_raw": "no json"}
    assert (job["result"], job["error"], job["ttl_s"]) == ("[1", "boom", 0)
    assert (job["created_ts"], job["attempt"], job["worker"]) == (1700000000000, 1, None)

    raw.call("HSET", f"job:{job_id}", "payload", "[1]", "task", b"\xff\xfe", "result", b'"\xff"')
    job = served.job(job_id)
    assert job["payload"] == {"_raw": "[1]"}
    assert job["task"] == "\N{REPLACEMENT CHARACTER}" * 2
    assert job["result"] == '"\N{REPLACEMENT CHARACTER}"'

    raw.call("HSET", f"job:{job_id}", "status", "dreaming")
    problem(served.client.get(f"/v1/jobs/{job_id}"), 502, "contract_violated")
    assert served.client.get("/v1/jobs").status_code == 200


@clause("J-13", "J-16")
def test_j13_a_job_with_a_wrong_id_in_its_hash_is_read_and_retried(
    served: ServedJobs, raw: Raw, fresh: Fresh
) -> None:
    job_id = fresh("job")
    foreign_job(raw, job_id)
    raw.call("HSET", f"job:{job_id}", "job_id", b"\xff")
    assert served.job(job_id)["status"] == "queued"
    raw.call("HSET", f"job:{job_id}", "status", "error")
    answer = served.client.post(f"/v1/jobs/{job_id}/retry")
    assert (answer.status_code, answer.json()["retry_of"]) == (202, job_id)


@clause("J-13")
def test_j13_an_expired_job_is_not_found(served: ServedJobs, raw: Raw) -> None:
    job_id = served.submit()["job_id"]
    raw.delete(f"job:{job_id}", f"job:{job_id}:events")
    for method, path in (
        ("GET", ""),
        ("GET", "/events"),
        ("DELETE", ""),
        ("POST", "/cancel"),
        ("POST", "/retry"),
    ):
        answer = served.client.request(method, f"/v1/jobs/{job_id}{path}")
        problem(answer, 404, "job_not_found")


@clause("J-13")
async def test_j13_a_reader_may_wait_for_the_end(
    valkey: LocalValkey, proxy: Proxy, lab: StreamsLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its commands are counted, so none may be sent because some seconds have passed.
    monkeypatch.setattr("jobwire.valkey.tracking._TICK_S", 3600.0)
    monkeypatch.setattr("jobwire.valkey.subscription.PING_EVERY_S", 3600.0)
    with ServedJobs(proxy.url(valkey.url)) as served, ThreadPoolExecutor(2) as pool:
        worker, leased = await leased_job(served, lab)
        path = f"/v1/jobs/{leased.job.id}"
        prefer = {"prefer": "respond-async, wait=60"}
        asked = pool.submit(served.client.get, path, headers=prefer)
        await wait_until(lambda: served.follower.followed, "the gateway to wait")
        await proxy.until_seen("XRANGE")
        proxy.forget_seen()
        await worker.settle([(leased, Done('"over"'))], 0)
        answer = await asyncio.wrap_future(asked)
        assert (answer.json()["status"], answer.json()["result"]) == ("done", "over")
        assert answer.headers["preference-applied"] == "wait=60"
        # One read of the events that changed, one of the job: no polling.
        assert sorted(proxy.names) == ["HGETALL", "XRANGE"]

        again = served.client.get(path, headers=prefer)
        assert again.json() == answer.json()
        assert "preference-applied" not in again.headers


@clause("J-13")
async def test_j13_a_submission_may_wait_for_its_end(served: ServedJobs, lab: StreamsLab) -> None:
    worker = await lab.worker("chat")
    body: JsonObject = {"task": "chat", "payload": {}}
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(
            served.client.post, "/v1/jobs", json=body, headers={"prefer": "wait=60"}
        )
        while not (taken := await worker.take(1)):
            await worker.wait(1)
        await worker.settle([(taken[0], Done("42"))], 0)
        answer = await asyncio.wrap_future(asked)
    assert (answer.status_code, answer.json()["result"]) == (200, 42)

    late = served.client.post("/v1/jobs", json=body, headers={"prefer": "wait=1"})
    assert (late.status_code, late.json()["status"]) == (202, "queued")
    assert late.headers["preference-applied"] == "wait=1"


@clause("J-13", "O-15")
@pytest.mark.parametrize("when", ["at-once", "later"])
def test_j13_a_half_closed_client_gets_what_is_known_now(served: ServedJobs, when: str) -> None:
    """As `nc -N` does: it sends nothing more, and reads. Most such clients have gone."""
    wait_until_sync(lambda: not served.follower.followed, "the end of earlier streams")
    body = b'{"task":"chat","payload":{}}'
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nPrefer: wait=60\r\n"
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as peer:
        peer.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        if when == "later":
            wait_until_sync(lambda: served.follower.followed, "the gateway to wait")
        peer.shutdown(socket.SHUT_WR)
        got = b""
        while part := peer.recv(65536):
            got += part
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 202 Accepted\r\n")
    assert json.loads(body)["status"] == "queued"


@clause("J-13", "J-17")
def test_j13_waiting_requests_are_answered_when_the_gateway_stops(valkey: LocalValkey) -> None:
    with ServedJobs(valkey.url) as served, ThreadPoolExecutor(1) as pool:
        path = f"/v1/jobs/{served.submit()['job_id']}"
        asked = pool.submit(served.client.get, path, headers={"prefer": "wait=60"})
        wait_until_sync(lambda: served.follower.followed, "the gateway to wait")
        served.stop()
        assert asked.result(30).json()["status"] == "queued"


@clause("J-55")
async def test_j55_only_admin_keys_read_an_exception(
    served: ServedJobs, keyed: ServedJobs, lab: StreamsLab
) -> None:
    worker, leased = await leased_job(served, lab)
    error = JobError("handler_error", "it raised", True, "", "Traceback", "KeyError", "'a'")
    await worker.settle([(leased, Failed(error))], 0)
    shown = {"exception_type": "KeyError", "exception_message": "'a'", "traceback": "Traceback"}
    open_job = served.job(leased.job.id)
    assert shown.items() <= open_job.items(), "on loopback without keys"
    assert shown.items() <= keyed.job(leased.job.id, **bearer("boss")).items()
    assert keyed.job(leased.job.id, **bearer("plain")) == {
        name: value for name, value in open_job.items() if name not in shown
    }


# ── J-14 ─────────────────────────────────────────────────────────────────────────────────────────


def pages(served: ServedJobs, **query: str | int) -> list[JsonObject]:
    """Every page of a list."""
    found: list[JsonObject] = []
    while True:
        page = cast(JsonObject, served.client.get("/v1/jobs", params=query).json())
        found.append(page)
        if page["cursor"] is None:
            return found
        query["cursor"] = cast(str, page["cursor"])


def ids(listed: list[JsonObject]) -> list[str]:
    return [
        cast(str, job["job_id"])
        for page in listed
        for job in cast("list[JsonObject]", page["jobs"])
    ]


@clause("J-14")
async def test_j14_newest_first_with_filters_and_pages(served: ServedJobs, lab: StreamsLab) -> None:
    worker = await lab.worker("chat", "embed")
    made = [served.submit("chat" if number % 2 else "embed")["job_id"] for number in range(6)]
    (leased,) = await worker.take(1)
    await worker.settle([(leased, Done("1"))], 0)
    assert leased.job.id == made[0]

    whole = pages(served)
    times = [cast(int, job["created_ts"]) for job in cast("list[JsonObject]", whole[0]["jobs"])]
    assert times == sorted(times, reverse=True)
    assert set(ids(whole)) == set(made)
    assert whole[0]["scanned"] == 6
    assert ids(pages(served, status="done")) == [made[0]]
    assert set(ids(pages(served, task="chat"))) == set(made[1::2])
    small = pages(served, limit=2)
    assert ids(small) == ids(whole)
    assert [len(cast("list[object]", page["jobs"])) for page in small] == [2, 2, 2]
    line = cast("list[JsonObject]", whole[0]["jobs"])[0]
    assert "payload" not in line
    assert "result" not in line


@clause("J-14")
def test_j14_jobs_of_one_millisecond_are_paged_without_loss_or_repeat(
    served: ServedJobs, raw: Raw
) -> None:
    """Also if the last job of a page has expired when the next page is requested."""
    made = [f"{number:04}-job" for number in range(250)]
    for job_id in made:
        foreign_job(raw, job_id)
        raw.call("ZADD", "jobs:index", 1700000000000, job_id)
    listed = pages(served, limit=7)
    assert ids(listed) == sorted(made, reverse=True)

    first = cast(JsonObject, served.client.get("/v1/jobs", params={"limit": 100}).json())
    last_seen = ids([first])[-1]
    raw.delete(f"job:{last_seen}")
    raw.call("ZREM", "jobs:index", last_seen)
    rest = pages(served, limit=100, cursor=cast(str, first["cursor"]))
    assert ids([first, *rest]) == sorted(made, reverse=True)


@clause("J-13", "O-15")
@pytest.mark.parametrize(
    "wait", ["61", "999999999", "61," + " " * 9000 + "x", "61;" + "wait," * 2000]
)
async def test_o15_a_wait_is_bounded(served: ServedJobs, lab: StreamsLab, wait: str) -> None:
    await wait_until(lambda: not served.follower.followed, "the end of earlier streams")
    worker, leased = await leased_job(served, lab)
    path, prefer = f"/v1/jobs/{leased.job.id}", {"prefer": f"wait={wait}"}
    asked = asyncio.create_task(asyncio.to_thread(served.client.get, path, headers=prefer))
    await wait_until(lambda: served.follower.followed, "the gateway to wait")
    await worker.settle([(leased, Done("1"))], 0)
    assert (await asked).headers["preference-applied"] == "wait=60"


@clause("J-14")
def test_j14_a_page_scans_at_most_a_thousand_jobs(served: ServedJobs, raw: Raw) -> None:
    """A match lies beyond them; expired jobs are removed from the index during the scan."""
    foreign_job(raw, "needle", status="error")
    raw.call("ZADD", "jobs:index", 1, "needle")
    gone = [value for number in range(1500) for value in (1700000000000 + number, f"gone-{number}")]
    raw.call("ZADD", "jobs:index", *gone)
    listed = pages(served, status="error")
    assert [page["scanned"] for page in listed] == [1000, 501]
    assert ids(listed) == ["needle"]
    assert raw.members("jobs:index") == ["needle"]


@clause("J-14", "O-15")
def test_o15_a_page_of_jobs_is_bounded_in_bytes(served: ServedJobs, raw: Raw) -> None:
    """Twelve jobs of 9 MB, and two hundred whose errors are as large as an event may be."""
    failed = {"code": "broken", "message": "m" * 2000, "retryable": False, "attempt": 2}
    error = json.dumps({**failed, "partial": ["p" * 60_000]})
    progress = json.dumps({"type": "progress", "step": "s" * 60_000, "data": {}})
    made = [f"{number:04}-job" for number in range(212)]
    for number, job_id in enumerate(made):
        huge = number < 12
        fields = {"payload": "x" * 9_000_000, "worker": "w" * 9_000_000} if huge else {}
        foreign_job(raw, job_id, error=error, progress=progress, status="error", **fields)
        raw.call("ZADD", "jobs:index", 1700000000000, job_id)
    found: list[str] = []
    cursor: dict[str, str] | None = {}
    while cursor is not None:
        answer = served.client.get("/v1/jobs", params={"limit": 200, **cursor})
        assert len(answer.content) <= 1 << 20
        page = answer.json()
        for job in page["jobs"]:
            assert len(json.dumps(job)) < 3 * 1024
            assert job["error"] == {**failed, "message": "m" * 500 + "…"}
            assert job["progress"].startswith('{"type": "progress"')
        found += [job["job_id"] for job in page["jobs"]]
        cursor = {"cursor": page["cursor"]} if page["cursor"] else None
    assert found == sorted(made, reverse=True)


@clause("J-14", "O-6")
def test_j14_a_tenant_lists_its_own_jobs(keyed: ServedJobs) -> None:
    for name in ("plain", "acme", "acme"):
        body = {"task": "chat", "payload": {"of": name}}
        assert keyed.client.post("/v1/jobs", json=body, headers=bearer(name)).status_code == 202
    counts = {
        name: len(keyed.client.get("/v1/jobs", headers=bearer(name)).json()["jobs"])
        for name in ("plain", "acme", "globex")
    }
    assert counts == {"plain": 1, "acme": 2, "globex": 0}


@clause("J-14", "J-19")
@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=201",
        "limit=x",
        "limit=",
        "limit=5.0",
        "limit=1_0",
        "limit=%205",
        "limit=%D9%A3",
        "limit=5&limit=x",
        "status=asleep",
        "cursor=x",
        "cursor=1-",
        "cursor=",
    ],
)
def test_j14_an_invalid_query_names_the_parameter(served: ServedJobs, query: str) -> None:
    body = problem(served.client.get(f"/v1/jobs?{query}"), 422, "invalid_request")
    (error,) = cast("list[JsonObject]", body["errors"])
    assert (error["in"], error["pointer"]) == ("query", f"/{query.partition('=')[0]}")


# ── J-16 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-16")
@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize("delay_s", [0, 600])
def test_j16_a_waiting_job_ends_at_once_and_leaves_the_queue(
    served: ServedJobs, raw: Raw, method: str, delay_s: int
) -> None:
    job_id = served.submit(delay_s=delay_s)["job_id"]
    path = f"/v1/jobs/{job_id}" + ("/cancel" if method == "POST" else "")
    answer = served.client.request(method, path)
    assert answer.status_code == 200
    assert answer.json() == {"job_id": job_id, "outcome": "canceled"}
    assert served.job(job_id)["status"] == "canceled"
    assert raw.last(f"job:{job_id}:events")["type"] == "canceled"
    assert (raw.length("jobs:stream"), raw.members("jobs:delayed")) == (0, [])
    problem(served.client.request(method, path), 409, "already_finished")


@clause("J-16")
async def test_j16_cancel_reaches_the_worker_of_a_running_job(
    served: ServedJobs, lab: StreamsLab
) -> None:
    worker, leased = await leased_job(served, lab)
    async with lab.connection.subscribe("jobs:control") as messages:
        answer = served.client.post(f"/v1/jobs/{leased.job.id}/cancel")
        assert (answer.status_code, answer.json()["outcome"]) == (202, "canceling")
        assert await anext(messages) == ("jobs:control", leased.token)
    assert served.job(leased.job.id)["cancel_ts"] is not None
    assert served.job(leased.job.id)["status"] == "running"
    await worker.settle([(leased, Canceled('"half"'))], 0)
    job = served.job(leased.job.id)
    assert job["status"] == "canceled"
    assert cast(JsonObject, job["error"])["partial"] == "half"


@clause("J-16")
async def test_j16_cancel_of_a_foreign_workers_job_is_a_request(
    served: ServedJobs, raw: Raw
) -> None:
    job_id = served.submit()["job_id"]
    raw.call("XGROUP", "CREATE", "jobs:stream", "workers", "0")
    raw.read("jobs:stream", "foreign-1")
    raw.call("HSET", f"job:{job_id}", "status", "running")
    answer = served.client.post(f"/v1/jobs/{job_id}/cancel")
    assert answer.status_code == 202
    assert answer.json() == {"job_id": job_id, "outcome": "cancel_requested"}
    assert [event["type"] for _, event in raw.entries(f"job:{job_id}:events")] == ["queued"]
    assert raw.field(f"job:{job_id}", "cancel_ts")


@clause("J-16")
async def test_j16_a_failed_job_is_retried_as_a_new_job(
    served: ServedJobs, lab: StreamsLab, raw: Raw, fresh: Fresh
) -> None:
    worker = await lab.worker("chat")
    first = served.submit(payload={"prompt": "again"}, ttl_s=700, max_attempts=2, timeout_s=9)
    path = f"/v1/jobs/{first['job_id']}/retry"
    problem(served.client.post(path), 409, "not_retryable")
    (leased,) = await worker.take(1)
    problem(served.client.post(path), 409, "not_retryable")
    await worker.settle([(leased, Failed(ERROR))], 0)
    before = raw.fields(f"job:{first['job_id']}")

    headers = {"idempotency-key": fresh("key")}
    answer = served.client.post(path, headers=headers)
    again = answer.json()
    assert (answer.status_code, again["status"]) == (202, "queued")
    assert answer.headers["location"] == f"/v1/jobs/{again['job_id']}"
    assert again["retry_of"] == first["job_id"]
    for name in ("task", "payload", "ttl_s", "max_attempts", "timeout_s"):
        assert again[name] == first[name], name
    assert raw.fields(f"job:{first['job_id']}") == before, "the old job is unchanged"

    repeated = served.client.post(path, headers=headers)
    assert (repeated.status_code, repeated.json()["job_id"]) == (200, again["job_id"])

    (leased,) = await worker.take(1)
    await worker.settle([(leased, Done("1"))], 0)
    problem(served.client.post(f"/v1/jobs/{again['job_id']}/retry"), 409, "not_retryable")


@clause("J-16")
def test_j16_an_invalid_foreign_job_is_not_retried(
    served: ServedJobs, raw: Raw, fresh: Fresh
) -> None:
    """A foreign gateway's job whose payload or task our gateway would refuse."""
    bad, unknown = fresh("job"), fresh("job")
    foreign_job(raw, bad, status="error", payload="no json")
    foreign_job(raw, unknown, status="error", task=fresh("task"))
    problem(served.client.post(f"/v1/jobs/{bad}/retry"), 422, "invalid_payload")
    problem(served.client.post(f"/v1/jobs/{unknown}/retry"), 422, "unknown_task")
    assert raw.length("jobs:stream") == 0
