"""O-11, O-9: the fleet and the last hour over HTTP, and limits of the gateway that apply to
them."""

from __future__ import annotations

import json
from typing import cast

from jobwire.gateway.settings import GatewaySettings
from jobwire.job.messages import Canceled, Done, Failed, JobError, Released, RetryLater
from jobwire.local import LocalValkey
from tests.support import clause
from tests.support.jobs_http import JsonObject, ServedJobs, bearer, problem
from tests.support.raw import Raw
from tests.support.streams import StreamsLab

ERROR = JobError("no_such_city", "there is no city of that name")


@clause("O-11")
async def test_o11_the_workers_and_what_their_slots_run(
    served: ServedJobs, lab: StreamsLab, raw: Raw
) -> None:
    assert served.client.get("/v1/workers").json() == {"workers": []}
    worker = await lab.worker("chat")
    served.submit()
    (leased,) = await worker.take(1)
    foreign = served.submit()
    raw.read("jobs:stream", "foreign-1")
    raw.call("HSET", f"job:{foreign['job_id']}", "status", "running")
    listed = cast("list[JsonObject]", served.client.get("/v1/workers").json()["workers"])
    found = {worker["name"]: worker for worker in listed}
    ours = found[worker.consumer]
    assert (ours["ours"], ours["slots"], ours["handlers"]) == (True, 10, ["chat"])
    assert all(ours[name] for name in ("host", "pid", "version", "started_ts"))
    assert 0 <= cast(int, ours["heartbeat_age_ms"]) < 60_000
    job = served.job(leased.job.id)
    slot = {"job_id": leased.job.id, "task": "chat", "since_ts": job["started_ts"]}
    assert ours["running"] == [{**slot, "wire": "streams", "queue": ""}]
    theirs = found["foreign-1"]
    assert (theirs["ours"], theirs["host"], theirs["handlers"]) == (False, None, [])
    (other,) = cast("list[JsonObject]", theirs["running"])
    assert other["job_id"] == foreign["job_id"]

    await worker.settle([(leased, Released())], 0)
    await worker.deregister()
    listed = served.client.get("/v1/workers").json()["workers"]
    assert [worker["name"] for worker in listed] == ["foreign-1"]


@clause("O-11", "J-10")
def test_o11_a_consumer_whose_name_is_no_text_hides_nothing(served: ServedJobs, raw: Raw) -> None:
    job_id = served.submit()["job_id"]
    raw.call("XGROUP", "CREATE", "jobs:stream", "workers", "0")
    raw.call("XREADGROUP", "GROUP", "workers", b"jobwire-\xff", "STREAMS", "jobs:stream", ">")
    raw.call("HSET", f"job:{job_id}", "status", "running", "job_id", b"\xff")
    for path in ("/v1/workers", "/v1/overview", "/v1/tasks", "/v1/scale", "/readyz", "/metrics"):
        assert served.client.get(path).status_code == 200, path
    body: JsonObject = {"task": "unheard-of", "payload": {}}
    problem(served.client.post("/v1/jobs", json=body), 422, "unknown_task")


@clause("O-11", "O-6")
async def test_o11_another_tenants_job_is_an_occupied_slot_without_id(
    keyed: ServedJobs, lab: StreamsLab
) -> None:
    worker = await lab.worker("chat")
    body: JsonObject = {"task": "chat", "payload": {}}
    keyed.client.post("/v1/jobs", json=body, headers=bearer("acme"))
    (leased,) = await worker.take(1)

    def slots(name: str) -> list[JsonObject]:
        (found,) = keyed.client.get("/v1/workers", headers=bearer(name)).json()["workers"]
        return cast("list[JsonObject]", found["running"])

    assert slots("acme")[0]["job_id"] == leased.job.id
    (hidden,) = slots("globex")
    assert (hidden["job_id"], hidden["task"]) == (None, None)
    assert hidden["since_ts"] == slots("acme")[0]["since_ts"]


@clause("O-11")
async def test_o11_the_last_hour_by_minute(served: ServedJobs, lab: StreamsLab, raw: Raw) -> None:
    worker = await lab.worker("chat")
    for _ in range(5):
        served.submit()
    taken = await worker.take(5)
    raw.call("HINCRBY", f"job:{taken[0].job.id}", "started_ts", -10_000)
    transient = JobError("handler_error", "try again", retryable=True)
    outcomes = [Done("1"), Done("2"), Failed(ERROR), Canceled(), RetryLater(60, transient)]
    await worker.settle(list(zip(taken, outcomes, strict=True)), 0)
    stats = cast(JsonObject, served.client.get("/v1/stats").json())
    hour, minutes = cast(JsonObject, stats["hour"]), cast("list[JsonObject]", stats["minutes"])
    counted = {name: hour[name] for name in ("submitted", "done", "error", "canceled", "retried")}
    assert counted == {"submitted": 5, "done": 2, "error": 1, "canceled": 1, "retried": 1}
    assert len(minutes) == 60
    starts = [cast(int, minute["start_ts"]) for minute in minutes]
    assert starts == [starts[0] + 60_000 * number for number in range(60)]
    assert sum(cast(int, minute["submitted"]) for minute in minutes[-2:]) == 5
    duration, latency = cast(JsonObject, hour["duration_ms"]), cast(JsonObject, hour["latency_ms"])
    assert 9_000 < cast(float, duration["p99"]) < 30_000
    assert cast(float, duration["p50"]) < 9_000
    assert all(cast(float, latency[name]) >= 0 for name in ("p50", "p90", "p99"))
    empty = cast(JsonObject, minutes[0]["latency_ms"])
    assert empty == {"p50": None, "p90": None, "p99": None}
    assert all(raw.ttl_s(key) > 7000 for key in raw.find("jobs:stats:*"))


@clause("O-14")
async def test_o14_the_load_of_the_fleet(served: ServedJobs, lab: StreamsLab) -> None:
    def scale(query: str = "") -> JsonObject:
        return cast(JsonObject, served.client.get(f"/v1/scale{query}").json())

    empty = {"waiting": 0, "running": 0, "slots": 10, "oldest_waiting_s": 0.0, "load": 0.0}
    assert scale() == empty
    worker = await lab.worker("chat")
    for _ in range(3):
        served.submit()
    served.submit(delay_s=30)
    served.submit(delay_s=3000)
    (leased,) = await worker.take(1)
    found = scale("?slots=2")
    assert cast(float, found.pop("oldest_waiting_s")) > 0
    # Two in the queue and one that is due within a minute; the leased one needs its worker.
    assert found == {"waiting": 3, "running": 1, "slots": 2, "load": 2.0}
    # A canceled job does not hide the others.
    served.client.delete(f"/v1/jobs/{leased.job.id}")
    await worker.settle([(leased, Canceled())], 0)
    assert scale("?slots=2")["load"] == 1.5
    for wrong in ("0", "-1", "1e3", "x"):
        problem(served.client.get(f"/v1/scale?slots={wrong}"), 422, "invalid_request")


@clause("O-14")
def test_o14_an_unreachable_server_is_503_and_not_zero(own_valkey: LocalValkey) -> None:
    with ServedJobs(own_valkey.url) as served:
        assert served.client.get("/v1/scale").status_code == 200
        own_valkey.kill()
        problem(served.client.get("/v1/scale"), 503, "unavailable")


@clause("J-17", "O-9")
def test_o09_event_streams_of_a_key_are_limited(valkey: LocalValkey) -> None:
    """Limits of the gateway apply to the routes of jobs too: here `streams_per_key`."""
    with ServedJobs(valkey.url, gateway=GatewaySettings(streams_per_key=1)) as served:
        job_id = served.submit()["job_id"]
        with served.events(job_id) as first:
            assert first.next() is not None
            second = served.client.get(f"/v1/jobs/{job_id}/events")
            problem(second, 429, "too_many_streams")
        assert json.loads(served.client.get("/openapi.json").text)["openapi"] == "3.1.0"
