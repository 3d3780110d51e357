"""O-11, J-1, J-14, O-6: the routes of the operator's page: overview, failures, search, wire,
list."""

from __future__ import annotations

from typing import cast

from jobwire.gateway.settings import GatewaySettings
from jobwire.job.messages import Done, Failed, JobError, LeasedJob, Report
from jobwire.local import LocalValkey
from jobwire.systems.jobs.engine import StreamsEngine
from tests.support import Fresh, clause, wait_until, wait_until_sync
from tests.support.jobs_http import JsonObject, ServedJobs, bearer, key, problem
from tests.support.raw import Raw
from tests.support.streams import StreamsLab

ERROR = JobError("timeout", "no answer within 30 s\nsecond line")
HOSTILE = "<img src=x onerror=alert(1)>"


def read(served: ServedJobs, path: str, name: str = "") -> JsonObject:
    answer = served.client.get(path, headers=bearer(name) if name else {})
    assert answer.status_code == 200, answer.text
    return cast(JsonObject, answer.json())


def row(served: ServedJobs, **expected: object) -> JsonObject:
    """The row of the jobs, once it has these values: an overview may be half a second old."""

    def found() -> JsonObject | None:
        (only,) = cast("list[JsonObject]", read(served, "/v1/overview")["systems"])
        return only if expected.items() <= only.items() else None

    return cast(JsonObject, wait_until_sync(found, f"a row with {expected}"))


def kinds(served: ServedJobs, query: str = "", name: str = "") -> list[JsonObject]:
    return cast("list[JsonObject]", read(served, f"/v1/failures{query}", name)["failures"])


async def fail(
    worker: StreamsEngine, served: ServedJobs, *messages: str, code: str = "timeout"
) -> list[LeasedJob]:
    """One failed job for each message."""
    for _ in messages:
        served.submit()
    taken = list(await worker.take(len(messages)))
    errors = [JobError(code, message) for message in messages]
    await worker.settle(
        [(leased, Failed(error)) for leased, error in zip(taken, errors, strict=True)], 0
    )
    return taken


# ── /v1/overview ─────────────────────────────────────────────────────────────────────────────────


@clause("O-11")
async def test_o11_the_overview_shows_depth_workers_and_the_last_hour(
    served: ServedJobs, lab: StreamsLab, raw: Raw
) -> None:
    served.submit()
    alone = row(served, system="jobs", wire="streams", waiting=1, workers=0)
    assert (alone["slots"], alone["heartbeat_age_ms"]) == (0, None)
    assert cast(int, alone["oldest_waiting_ms"]) >= 0
    assert alone["paused"] is False
    served.client.post("/v1/jobs/queues/default/pause").raise_for_status()
    row(served, waiting=1, paused=True)
    served.client.post("/v1/jobs/queues/default/resume").raise_for_status()
    row(served, waiting=1, paused=False)

    worker = await lab.worker("chat")
    (leased,) = await worker.take(1)
    served.submit(delay_s=600)
    row(served, waiting=0, delayed=1, running=1, workers=1, slots=10, oldest_waiting_ms=None)

    await worker.settle([(leased, Failed(ERROR))], 0)
    found = row(served, running=0, error=1, done=0, submitted=2)
    assert len(cast("list[int]", found["ended_by_minute"])) == 60
    assert sum(cast("list[int]", found["failed_by_minute"])) == 1
    assert cast(JsonObject, found["duration_ms"])["p90"] is not None

    # An emptied server is noticed, though ended minutes are kept.
    for minute in raw.find("jobs:stats:*"):
        raw.delete(minute)
    row(served, submitted=0, error=0)


@clause("O-11", "J-53")
async def test_o11_the_overview_shows_each_queue_and_who_reads_it(
    served: ServedJobs, lab: StreamsLab, raw: Raw, fresh: Fresh
) -> None:
    """Other queues have workers: that of one queue has stopped while a job waits in it."""
    task, reports, mail = fresh("task"), fresh("reports"), fresh("mail")
    worker = await lab.worker(task, queues=(reports,))
    await lab.worker("chat", queues=("default", mail))
    served.submit(task)
    await worker.deregister()
    raw.read("jobs:stream", "foreign-1")
    found = row(served, waiting=1, workers=2)
    queues = {str(each["name"]): each for each in cast("list[JsonObject]", found["queues"])}
    assert next(iter(queues)) == "default"
    assert {name: each["workers"] for name, each in queues.items()} == {
        "default": 2,  # and a foreign one
        reports: 0,
        mail: 1,
    }
    late = queues[reports]
    assert (late["waiting"], late["running"], late["paused"]) == (1, 0, False)
    assert cast(int, late["oldest_waiting_ms"]) >= 0
    assert queues[mail]["oldest_waiting_ms"] is None
    served.client.post(f"/v1/jobs/queues/{reports}/pause").raise_for_status()

    def is_paused() -> bool:
        (only,) = cast("list[JsonObject]", read(served, "/v1/overview")["systems"])
        listed = cast("list[JsonObject]", only["queues"])
        return any(each["name"] == reports and each["paused"] for each in listed)

    wait_until_sync(is_paused, "the queue to be shown as paused")


@clause("J-53", "J-10")
async def test_j53_a_task_lists_its_workers_and_all_queues_in_which_it_is_live(
    served: ServedJobs, lab: StreamsLab, fresh: Fresh
) -> None:
    task, old, new = fresh("task"), fresh("old"), fresh("new")
    await lab.worker(task, queues=(old,))
    await lab.worker(task, queues=(new,))
    await lab.worker("chat")
    tasks = {each["name"]: each for each in served.client.get("/v1/tasks").json()["tasks"]}
    assert (tasks[task]["workers"], sorted(tasks[task]["queues"])) == (2, sorted([new, old]))
    assert (tasks["chat"]["workers"], tasks["chat"]["queues"]) == (1, ["default"])
    assert (tasks["rag"]["workers"], tasks["rag"]["queues"]) == (0, [])


# ── /v1/failures ─────────────────────────────────────────────────────────────────────────────────


@clause("O-11")
async def test_o11_failures_are_grouped_by_task_code_and_first_line(
    served: ServedJobs, lab: StreamsLab, raw: Raw
) -> None:
    assert read(served, "/v1/failures") == {
        "hours": 24,
        "count": 0,
        "failures": [],
        "unavailable": [],
        "scanned": 0,
        "total": 0,
    }
    worker = await lab.worker("chat")
    failed = await fail(
        worker,
        served,
        "no answer for 3f2a91c4-6be0-4d1f-8a57-c40e19d2b791 within 30 s\nFile x",
        "no answer for 0e5b7d22-6be0-4d1f-8a57-c40e19d2b791 within 30 s\nFile y",
        "HTTP 503",
        "HTTP 404",
    )
    await fail(worker, served, HOSTILE, code="odd")
    found = kinds(served)
    assert [(each["code"], each["message"], each["count"]) for each in found[:1]] == [
        ("timeout", "no answer for … within 30 s", 2)
    ]
    assert {str(each["message"]) for each in found[1:]} == {"HTTP 503", "HTTP 404", HOSTILE}
    first = found[0]
    assert (first["system"], first["wire"], first["task"]) == ("jobs", "streams", "chat")
    assert first["sample_job_id"] in {leased.job.id for leased in failed[:2]}
    assert first["worker"] == worker.consumer
    assert sum(cast("list[int]", first["by_hour"])) == 2
    assert len(cast("list[int]", first["by_hour"])) == 24
    assert cast(int, first["first_ts"]) <= cast(int, first["last_ts"])
    assert read(served, "/v1/failures")["count"] == 5
    assert all(80_000 < raw.ttl_s(stored) <= 90_000 for stored in raw.find("jobs:failures:*"))

    another = await lab.worker("chat")
    await fail(another, served, "no answer for 11111111-6be0-4d1f-8a57-c40e19d2b791 within 30 s")
    assert (kinds(served)[0]["count"], kinds(served)[0]["worker"]) == (3, None)


@clause("O-11")
async def test_o11_the_kinds_of_an_hour_are_bounded(
    served: ServedJobs, lab: StreamsLab, raw: Raw
) -> None:
    """A handler that puts random words into its messages does not fill the server."""
    # All of them in one hour of the server's clock.
    await wait_until(lambda: raw.now_ms() % 3_600_000 < 3_550_000, "the next hour")
    worker = await lab.worker("chat")
    words = [f"bad word {chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(450)]
    for at in range(0, 450, 150):
        await fail(worker, served, *words[at : at + 150])
    (stored,) = raw.find("jobs:failures:*")
    assert raw.call("HLEN", stored) == 401
    found = kinds(served)
    assert (found[0]["message"], found[0]["code"], found[0]["count"]) == ("", "timeout", 50)
    assert read(served, "/v1/failures")["count"] == 450


@clause("O-11", "O-6")
async def test_o06_failures_and_search_show_the_callers_tenant_only(
    keyed: ServedJobs, lab: StreamsLab
) -> None:
    worker = await lab.worker("chat")
    body: JsonObject = {"task": "chat", "payload": {}}
    header = {**bearer("acme"), "idempotency-key": "order-1"}
    keyed.client.post("/v1/jobs", json=body, headers=header)
    (leased,) = await worker.take(1)
    await worker.settle([(leased, Failed(JobError("odd", "secret of acme")))], 0)

    assert [each["message"] for each in kinds(keyed, name="acme")] == ["secret of acme"]
    for other in ("globex", "plain"):
        assert kinds(keyed, name=other) == []
        for text in (leased.job.id, leased.job.id[:8], "order-1", "chat"):
            assert read(keyed, f"/v1/search?q={text}", other)["found"] == []
        answer = keyed.client.get(f"/v1/jobs/{leased.job.id}/wire", headers=bearer(other))
        problem(answer, 404, "job_not_found")
    answer = keyed.client.get("/v1/failures?tenant=acme", headers=bearer("globex"))
    problem(answer, 403, "forbidden")
    (found,) = cast("list[JsonObject]", read(keyed, "/v1/search?q=order-1", "acme")["found"])
    assert (found["id"], found["status"]) == (leased.job.id, "error")


@clause("O-11")
def test_o11_bad_queries_are_refused(served: ServedJobs) -> None:
    for path in (
        "/v1/failures?hours=0",
        "/v1/failures?hours=25",
        "/v1/failures?hours=x",
        "/v1/search",
        "/v1/search?q=",
        f"/v1/search?q={'x' * 256}",
        f"/v1/jobs?q={'x' * 201}",
        "/v1/jobs?delayed=perhaps",
    ):
        problem(served.client.get(path), 422, "invalid_request")


# ── /v1/search and the list ──────────────────────────────────────────────────────────────────────


@clause("J-14", "O-11")
async def test_j14_jobs_are_found_by_id_key_and_text(served: ServedJobs, lab: StreamsLab) -> None:
    old = served.client.post(
        "/v1/jobs", json={"task": "chat", "payload": {}}, headers={"idempotency-key": "order 47:11"}
    ).json()
    served.submit("embed", {"texts": ["x"]})
    whole = read(served, f"/v1/search?q={old['job_id']}")
    assert [each["id"] for each in cast("list[JsonObject]", whole["found"])] == [old["job_id"]]
    assert whole["scanned"] == 0, "an id is looked up, however old the job is"
    by_key = read(served, "/v1/search?q=order%2047:11")
    assert [each["id"] for each in cast("list[JsonObject]", by_key["found"])] == [old["job_id"]]
    part = read(served, "/v1/search?q=EMB")
    assert [each["task"] for each in cast("list[JsonObject]", part["found"])] == ["embed"]
    assert (part["scanned"], part["total"]) == (2, 2)
    # Pattern characters are literal; the name of another key is not an id.
    for text in ("%25.", "%5B", "..", f"{old['job_id']}:events", "*", "jobs:stream"):
        assert read(served, f"/v1/search?q={text}")["found"] == [], text


@clause("J-14")
async def test_j14_the_list_has_delayed_jobs_and_the_number_stored(
    served: ServedJobs, lab: StreamsLab
) -> None:
    waiting = served.submit()
    delayed = served.submit(delay_s=600)
    worker = await lab.worker("chat")

    def ids(query: str) -> list[object]:
        page = read(served, f"/v1/jobs?{query}")
        return [each["job_id"] for each in cast("list[JsonObject]", page["jobs"])]

    assert ids("delayed=true") == [delayed["job_id"]]
    assert ids("delayed=false") == [waiting["job_id"]]
    assert ids(f"q={str(waiting['job_id'])[4:12]}") == [waiting["job_id"]]
    page = read(served, "/v1/jobs?status=error")
    assert (page["jobs"], page["scanned"], page["total"]) == ([], 2, 2)
    due = read(served, "/v1/jobs?delayed=true")["jobs"]
    wanted = cast(int, delayed["created_ts"]) + 600_000
    assert cast("list[JsonObject]", due)[0]["due_ts"] == wanted
    assert served.job(delayed["job_id"])["due_ts"] == wanted
    assert served.job(waiting["job_id"])["due_ts"] is None
    (leased,) = await worker.take(2)
    await worker.settle([(leased, Done("1"))], 0)
    assert ids("delayed=false") == []


# ── /v1/jobs/{id}/wire ───────────────────────────────────────────────────────────────────────────


def by_key(served: ServedJobs, job_id: object) -> dict[object, JsonObject]:
    body = read(served, f"/v1/jobs/{job_id}/wire")
    assert (body["job_id"], body["wire"]) == (job_id, "streams")
    return {each["key"]: each for each in cast("list[JsonObject]", body["keys"])}


@clause("J-1", "J-3")
async def test_j01_the_wire_shows_the_keys_as_they_are(
    served: ServedJobs, lab: StreamsLab, raw: Raw
) -> None:
    body: JsonObject = {"task": "chat", "payload": {"prompt": HOSTILE, "long": "x" * 9000}}
    header = {"idempotency-key": "page-1"}
    job_id = served.client.post("/v1/jobs", json=body, headers=header).json()["job_id"]
    worker = await lab.worker("chat")
    await worker.take(1)
    keys = by_key(served, job_id)
    assert [*keys][:2] == [f"job:{job_id}", f"job:{job_id}:events"]

    job = keys[f"job:{job_id}"]
    fields = {each["name"]: each for each in cast("list[JsonObject]", job["fields"])}
    assert fields.keys() == raw.fields(f"job:{job_id}").keys()
    assert [*fields][:4] == ["job_id", "task", "payload", "status"]
    assert fields["status"] == {"name": "status", "value": "running"}
    assert fields["worker"] == {"name": "worker", "value": worker.consumer, "extra": True}
    assert len(cast(str, fields["payload"]["value"])) == 4096
    assert cast(int, fields["payload"]["cut"]) > 4000
    assert 0 < cast(int, job["ttl_ms"]) <= 86_400_000
    assert (job["type"], job["command"]) == ("hash", ["HGETALL", f"job:{job_id}"])

    events = cast("list[JsonObject]", keys[f"job:{job_id}:events"]["entries"])
    assert len(events) == 2
    assert {"name": "type", "value": "queued"} in cast("list[JsonObject]", events[0]["fields"])
    queue = keys["jobs:stream"]
    assert (queue["ttl_ms"], cast(str, queue["note"]).endswith("leased")) == (None, True)
    assert cast(JsonObject, queue["pending"])["consumer"] == worker.consumer
    assert keys["idempotency:page-1"]["value"] == job_id
    assert keys["jobs:open"]["type"] == "zset"


@clause("J-1")
def test_j01_the_wire_of_a_delayed_job_and_of_odd_keys(served: ServedJobs, raw: Raw) -> None:
    job_id = served.submit(delay_s=600)["job_id"]
    keys = by_key(served, job_id)
    assert "jobs:stream" not in keys
    assert int(cast(str, keys["jobs:delayed"]["value"])) > 0
    raw.delete(f"job:{job_id}:events")
    raw.call("SET", f"job:{job_id}:events", "of another type", "EX", 60)
    raw.call("HSET", f"job:{job_id}", "task", b"\xff\xfe")
    fields = cast("list[JsonObject]", by_key(served, job_id)[f"job:{job_id}"]["fields"])
    assert {"name": "task", "value": "\N{REPLACEMENT CHARACTER}" * 2} in fields
    for path in ("none", "a:b", f"{job_id}:events"):
        problem(served.client.get(f"/v1/jobs/{path}/wire"), 404, "job_not_found")


@clause("J-1", "G-11")
def test_j01_the_wire_of_a_job_without_an_idempotency_key_reads_none(
    served: ServedJobs, raw: Raw
) -> None:
    """Regression: an empty key was read, which on a Cluster is of the slot of another node."""
    job_id = served.submit()["job_id"]
    raw.call("CONFIG", "RESETSTAT")
    assert f"job:{job_id}" in by_key(served, job_id)
    assert "cmdstat_get:" not in str(raw.call("INFO", "commandstats"))


@clause("J-1")
def test_j01_the_wire_of_a_job_with_invalid_texts_of_a_foreign_program(
    served: ServedJobs, raw: Raw
) -> None:
    job_id = served.submit()["job_id"]
    names = ("entry_id", "idempotency_key", "queue")
    raw.call("HSET", f"job:{job_id}", *(part for name in names for part in (name, b"\xff")))
    raw.call("SET", b"idempotency:\xff", str(job_id), "EX", 60)
    keys = by_key(served, job_id)
    raw.call("DEL", b"idempotency:\xff")
    assert keys["idempotency:\N{REPLACEMENT CHARACTER}"]["value"] == job_id
    assert "jobs:stream" not in keys


# ── /v1/me and read-only gateways ────────────────────────────────────────────────────────────────


@clause("O-6")
def test_o06_me_names_the_callers_key(served: ServedJobs, keyed: ServedJobs) -> None:
    local = read(served, "/v1/me")
    assert (local["key"], local["signed_in"], local["read_only"]) == ("local", False, False)
    assert local["scopes"] == ["admin", "read", "signal", "submit"]
    acme = read(keyed, "/v1/me", "acme-reader")
    assert (acme["key"], acme["tenant"]) == ("acme-reader", "acme")
    assert (acme["scopes"], acme["signed_in"]) == (["read"], True)
    problem(keyed.client.get("/v1/me"), 401, "unauthorized")


@clause("O-4", "O-6")
def test_o04_a_read_only_gateway_has_no_routes_that_change(
    served: ServedJobs, valkey: LocalValkey
) -> None:
    job_id = served.submit()["job_id"]
    settings = GatewaySettings(read_only=True, keys=(key("ops", "admin"),))
    with ServedJobs(valkey.url, gateway=settings) as looking:
        header = bearer("ops")
        assert read(looking, "/v1/me", "ops")["read_only"] is True
        assert read(looking, f"/v1/jobs/{job_id}", "ops")["status"] == "queued"
        body: JsonObject = {"task": "chat", "payload": {}}
        for method, path in (
            ("POST", "/v1/jobs"),
            ("POST", "/v1/jobs/batch"),
            ("POST", f"/v1/jobs/{job_id}/cancel"),
            ("DELETE", f"/v1/jobs/{job_id}"),
            ("POST", f"/v1/jobs/{job_id}/retry"),
            ("POST", "/v1/chat/completions"),
        ):
            answer = looking.client.request(method, path, json=body, headers=header)
            assert answer.status_code in (404, 405), f"{method} {path}"
        token = {"path": f"/v1/jobs/{job_id}/events"}
        answer = looking.client.post("/v1/stream-tokens", json=token, headers=header)
        assert answer.status_code == 201
    assert served.job(job_id)["status"] == "queued"


# ── events for a page ────────────────────────────────────────────────────────────────────────────


@clause("J-15")
async def test_j15_a_page_receives_events_of_unknown_types(
    served: ServedJobs, lab: StreamsLab
) -> None:
    """An EventSource delivers only events that it has a listener for."""
    worker = await lab.worker("chat")
    served.submit()
    (leased,) = await worker.take(1)
    await worker.report([(leased, Report("handlers.own", '{"a":1}'))])
    await worker.settle([(leased, Done("1"))], 0)
    with served.events(leased.job.id, "?data=message") as events:
        seen = events.rest()
    assert [each.name for each in seen] == ["hello", *["message"] * 4]
    types = [cast(JsonObject, each.data)["type"] for each in seen[1:]]
    assert types == ["queued", "running", "handlers.own", "done"]
    problem(served.client.get(f"/v1/jobs/{leased.job.id}/events?data=x"), 422, "invalid_request")
