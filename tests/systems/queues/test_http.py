"""B-12, B-18, B-19: queues over HTTP, as clients use them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import httpx
import msgspec
import pytest

from jobwire.api import queue_jobs
from jobwire.gateway.settings import GatewaySettings
from jobwire.local import LocalValkey
from jobwire.systems.queues.settings import QueuesSettings
from tests.cli.runner import jobwire
from tests.support import Fresh, Plain, clause, wait_until_sync
from tests.support.jobs_http import bearer, key, problem
from tests.systems.queues.served import SERVED, ServedQueues, worker_connected


@pytest.fixture(scope="module")
def _served(valkey: LocalValkey) -> Iterator[ServedQueues]:
    with ServedQueues(valkey.url, QueuesSettings(names=("named",)), worker=True) as running:
        worker_connected(valkey)
        yield running


@pytest.fixture
def served(_served: ServedQueues, valkey: LocalValkey) -> ServedQueues:
    """One gateway and worker for all tests; the server is emptied after each."""
    assert valkey.alive
    return _served


@pytest.fixture
def api(served: ServedQueues) -> httpx.Client:
    return served.client


def job_ids(api: httpx.Client, queue: str, state: str, **query: Any) -> list[str]:
    answer = api.get(f"/v1/queues/{queue}/jobs", params={"state": state, **query})
    assert answer.status_code == 200, answer.text
    return [job["id"] for job in answer.json()["jobs"]]


@clause("B-12")
def test_b12_queues_are_listed_and_shown(served: ServedQueues, api: httpx.Client) -> None:
    listed = {each["name"] for each in api.get("/v1/queues").json()["queues"]}
    assert "named" in listed, "a queue of the settings, before it exists"
    served.add("mail", delay=60_000)
    served.add("mail", priority=3)
    served.add("mail")
    info = api.get("/v1/queues/mail").json()
    assert info["counts"]["waiting"] == info["counts"]["delayed"] == 1
    assert info["counts"]["prioritized"] == 1
    assert info["paused"] is False
    assert info["workers"] == 0
    assert info["rate_limit"] is None
    assert info["completed"] == {"total": 0, "by_minute": []}


@clause("B-12")
def test_b12_a_job_added_over_http_is_run_by_the_worker(served: ServedQueues) -> None:
    data: dict[str, Any] = {"text": "é", "big": 9_007_199_254_740_993, "list": [], "none": None}
    job_id = served.add(SERVED, "echo", data, attempts=2)
    job = served.queue_job(SERVED, job_id, wait_s=30)
    assert job["state"] == "completed"
    assert job["data"] == job["returnvalue"] == data
    assert job["opts"]["attempts"] == 2
    assert (job["attempts_made"], job["problem"]) == (1, None)
    failed = served.queue_job(SERVED, served.add(SERVED, "fail"), wait_s=30)
    assert failed["state"] == "failed"
    assert "no disk" in failed["failed_reason"]


@clause("B-12")
def test_b12_bulk(served: ServedQueues, api: httpx.Client) -> None:
    one = {"name": "a", "opts": {"jobId": "same"}}
    other = {"name": "b", "opts": {"deduplication": {"id": "x"}}}
    answer = api.post("/v1/queues/mail/jobs", json={"jobs": [one, one, other, other]})
    outcomes = [each["outcome"] for each in answer.json()["jobs"]]
    assert outcomes == ["added", "duplicate", "added", "deduplicated"]
    good, bad = {"name": "a"}, {"name": "b", "opts": {"priority": -1}}
    refused = problem(api.post("/v1/queues/mail/jobs", json={"jobs": [good, bad]}), 422, "bad_job")
    assert str(refused["detail"]).startswith("job 1: priority")
    assert len(job_ids(api, "mail", "waiting")) == 2, "all are refused if one must be"


@clause("B-12")
def test_b12_jobs_are_listed_by_page(served: ServedQueues, api: httpx.Client) -> None:
    ids = [served.add("mail") for _ in range(5)]
    first = api.get("/v1/queues/mail/jobs", params={"limit": 2}).json()
    assert ([job["id"] for job in first["jobs"]], first["next"], first["total"]) == (ids[:2], 2, 5)
    assert job_ids(api, "mail", "waiting", first=4, limit=2) == ids[4:]
    assert job_ids(api, "mail", "failed") == []


@clause("B-12")
def test_b12_retry_promote_cancel_and_delete(served: ServedQueues, api: httpx.Client) -> None:
    path = f"/v1/queues/{SERVED}/jobs"
    failed = served.add(SERVED, "fail")
    served.queue_job(SERVED, failed, wait_s=30)
    problem(api.post(f"{path}/{failed}/promote"), 409, "wrong_state")
    problem(api.post(f"{path}/{failed}/cancel"), 409, "wrong_state")
    assert api.post(f"{path}/{failed}/retry").status_code == 200
    wait_until_sync(lambda: served.queue_job(SERVED, failed)["attempts_made"] == 2)

    delayed = served.add(SERVED, "echo", delay=3_600_000)
    problem(api.post(f"{path}/{delayed}/retry"), 409, "wrong_state")
    assert api.post(f"{path}/{delayed}/promote").status_code == 200
    assert served.queue_job(SERVED, delayed, wait_s=30)["state"] == "completed"

    delayed = served.add(SERVED, "echo", delay=3_600_000)
    canceled = api.post(f"{path}/{delayed}/cancel").json()
    assert canceled == {"id": delayed, "outcome": "canceled"}
    problem(api.get(f"{path}/{delayed}"), 404, "job_not_found")

    for job_id in (failed, served.add(SERVED, "echo", delay=3_600_000)):
        wait_until_sync(lambda job=job_id: served.queue_job(SERVED, job)["state"] != "active")
        assert api.delete(f"{path}/{job_id}").status_code == 204
        problem(api.delete(f"{path}/{job_id}"), 404, "job_not_found")


@clause("B-12")
def test_b12_a_running_job_is_canceled(served: ServedQueues, api: httpx.Client) -> None:
    path = f"/v1/queues/{SERVED}/jobs"
    for method, ending in (("POST", "/cancel"), ("DELETE", "")):
        job_id = served.add(SERVED, "hold", attempts=5)
        wait_until_sync(lambda job=job_id: served.queue_job(SERVED, job)["progress"] == 1)
        answer = api.request(method, f"{path}/{job_id}{ending}")
        assert answer.status_code == (200 if method == "POST" else 202)
        assert answer.json()["outcome"] == "requested"
        job = served.queue_job(SERVED, job_id, wait_s=30)
        assert (job["state"], job["failed_reason"]) == ("failed", "canceled")


@clause("B-26")
def test_b26_a_job_with_all_options_of_node(
    served: ServedQueues, api: httpx.Client, plain: Plain
) -> None:
    parent = served.add("mail", delay=60_000)
    opts = {
        "jobId": "order:17:mail",
        "timestamp": 1_700_000_000_000,
        "sizeLimit": 20,
        "telemetry": {"metadata": "00-4bf92f35", "omitContext": True},
        "parent": {"id": parent, "queue": "bull:mail"},
        "failParentOnFailure": True,
    }
    assert served.add("films", "cut", {"n": 1}, **opts) == "order:17:mail"
    job = api.get("/v1/queues/films/jobs/order:17:mail").json()
    assert (job["timestamp"], job["parent_key"]) == (1_700_000_000_000, f"bull:mail:{parent}")
    wire = {"tm": "00-4bf92f35", "omc": True, "fpof": True, "sizeLimit": 20}
    assert wire.items() <= job["opts"].items()
    assert plain.smembers(f"bull:mail:{parent}:dependencies") == {"bull:films:order:17:mail"}
    for more, code in (
        ({"data": "x" * 30, "opts": opts}, "bad_job"),
        ({"opts": {"failParentOnFailure": True}}, "bad_job"),
        ({"opts": {**opts, "ignoreDependencyOnFailure": True}}, "bad_job"),
        ({"opts": {"parent": {"id": parent, "queue": "a:b"}}}, "bad_queue_name"),
        ({"opts": {"debounce": {"id": "x"}}}, "invalid_request"),
    ):
        problem(api.post("/v1/queues/films/jobs", json={"name": "cut", **more}), 422, code)
    lost = {"name": "cut", "opts": {"parent": {"id": "nope", "queue": "mail"}}}
    problem(api.post("/v1/queues/films/jobs", json=lost), 409, "parent_not_found")


@clause("B-12")
def test_b12_pause_and_resume(served: ServedQueues, api: httpx.Client) -> None:
    assert api.post("/v1/queues/named/pause").json() == {"paused": True}
    assert api.get("/v1/queues/named").json()["paused"] is True
    assert api.post("/v1/queues/named/resume").json() == {"paused": False}
    assert api.get("/v1/queues/named").json()["paused"] is False


@clause("B-12")
def test_b12_drain_clean_retry_and_promote_all(served: ServedQueues, api: httpx.Client) -> None:
    for _ in range(3):
        served.add("mail")
        served.add("mail", delay=60_000)
    assert api.post("/v1/queues/mail/promote").json() == {"count": 3}
    assert api.post("/v1/queues/mail/drain").json() == {"count": 6}
    served.add("mail", delay=60_000)
    assert api.post("/v1/queues/mail/drain", json={"delayed": False}).json() == {"count": 0}
    assert api.post("/v1/queues/mail/drain", json={"delayed": True}).json() == {"count": 1}
    ids = [served.add(SERVED, "fail") for _ in range(2)]
    for job_id in ids:
        served.queue_job(SERVED, job_id, wait_s=30)
    assert api.post(f"/v1/queues/{SERVED}/retry").json() == {"count": 2}
    wait_until_sync(lambda: len(job_ids(api, SERVED, "failed")) == 2)
    old = {"state": "failed", "grace_ms": 3_600_000}
    assert api.post(f"/v1/queues/{SERVED}/clean", json=old).json() == {"count": 0}
    one = {"state": "failed", "limit": 1}
    assert api.post(f"/v1/queues/{SERVED}/clean", json=one).json() == {"count": 1}
    assert api.post(f"/v1/queues/{SERVED}/clean", json={"state": "failed"}).json() == {"count": 1}


@clause("B-12")
def test_b12_logs(served: ServedQueues, api: httpx.Client) -> None:
    job_id = served.add(SERVED, "steps")
    served.queue_job(SERVED, job_id, wait_s=30)
    logs = api.get(f"/v1/queues/{SERVED}/jobs/{job_id}/logs").json()
    assert logs == {"lines": ["half of it"], "total": 1}
    problem(api.get(f"/v1/queues/{SERVED}/jobs/nope/logs"), 404, "job_not_found")


# Events


@clause("B-12")
def test_b12_events_of_a_job_until_its_end(served: ServedQueues) -> None:
    job_id = served.add(SERVED, "steps")
    with served.queue_events(SERVED, job_id) as reader:
        seen = reader.rest()
    assert seen[0].name == "hello"
    names = [event.name for event in seen[1:]]
    assert names == ["added", "waiting", "active", "progress", "completed"]
    assert all(event.data["job_id"] == job_id for event in seen[1:] if isinstance(event.data, dict))
    fields: Any = seen[4].data
    assert (fields["fields"]["data"], fields["fields"]["message"]) == (50, "half of it")

    # From the middle, and after the end, as a browser that lost its connection.
    middle = seen[3].id or ""
    with served.queue_events(SERVED, job_id, last_event_id=middle) as reader:
        assert [event.name for event in reader.rest()[1:]] == ["progress", "completed"]
    with served.queue_events(SERVED, job_id, last_event_id=seen[-1].id or "") as reader:
        assert reader.answer.status == 204


@clause("B-12")
def test_b12_events_of_a_job_that_runs_again(served: ServedQueues, api: httpx.Client) -> None:
    """The end of an earlier run is not the end of the stream."""
    job_id = served.add(SERVED, "fail")
    served.queue_job(SERVED, job_id, wait_s=30)
    api.post("/v1/queues/named/pause")
    api.post(f"/v1/queues/{SERVED}/pause")
    api.post(f"/v1/queues/{SERVED}/jobs/{job_id}/retry")
    with served.queue_events(SERVED, job_id) as reader:
        assert [event.name for event in reader.until("failed")][-1] == "failed"
        api.post(f"/v1/queues/{SERVED}/resume")
        again = [event.name for event in reader.rest()]
    assert again[:4] == ["retries-exhausted", "waiting", "active", "failed"]


@clause("B-12")
def test_b12_events_of_a_queue_from_now_and_from_a_position(
    served: ServedQueues, api: httpx.Client, plain: Plain
) -> None:
    served.add("mail")
    with served.queue_events("mail") as reader:
        assert reader.until("hello")[0].data == {"queue": "mail"}
        job_id = served.add("mail")
        api.post("/v1/queues/mail/pause")
        seen = reader.until("paused")
        assert [event.name for event in seen] == ["added", "waiting", "paused"]
        # A foreign program's event, and one that cannot be encoded as JSON.
        plain.call("XADD", "bull:mail:events", "*", "event", "hello", "x", b"\xff")
        custom = reader.until("custom")[-1].data
        assert isinstance(custom, dict)
        assert custom["event"] == "hello"
        plain.call("XADD", "bull:mail:events", "*", "event", "progress", "data", b"\xff")
        progress = reader.until("progress")[-1].data
        assert isinstance(progress, dict)
        assert progress["fields"] == {"data": "?"}
    with served.queue_events("mail", last_event_id=seen[0].id or "") as reader:
        assert [event.name for event in reader.until("custom")][1:3] == ["waiting", "paused"]
    assert served.queue_job("mail", job_id)["state"] == "waiting"


@clause("B-12")
def test_b12_a_trimmed_position_shows_a_gap(served: ServedQueues, plain: Plain) -> None:
    served.add("mail")
    with served.queue_events("mail", last_event_id="5-0") as reader:
        names = [event.name for event in reader.until("waiting")]
        assert names == ["hello", "gap", "added", "waiting"]
    plain.call("XTRIM", "bull:mail:events", "MAXLEN", 0)
    with served.queue_events("mail", last_event_id=f"{2**64 - 1}-{2**64 - 1}") as reader:
        reader.until("gap")
        served.add("mail")
        assert [event.name for event in reader.until("waiting")][-1] == "waiting"


@clause("B-12")
def test_b12_a_removed_job_ends_its_stream(served: ServedQueues, api: httpx.Client) -> None:
    job_id = served.add("mail", delay=60_000)
    with served.queue_events("mail", job_id) as reader:
        reader.until("delayed")
        api.delete(f"/v1/queues/mail/jobs/{job_id}")
        assert reader.rest()[-1].name == "removed"


# Bad input


JOB = "/v1/queues/mail/jobs"
BAD_JOBS: dict[str, tuple[dict[str, Any], int, str]] = {
    "integer id": ({"opts": {"jobId": "12"}}, 422, "bad_job"),
    "id of an old marker": ({"opts": {"jobId": "0:1"}}, 422, "bad_job"),
    "colon in the id": ({"opts": {"jobId": "a:b"}}, 422, "bad_job"),
    "name of a key": ({"opts": {"jobId": "meta"}}, 422, "bad_job"),
    "priority too high": ({"opts": {"priority": 2_097_153}}, 422, "bad_job"),
    "negative priority": ({"opts": {"priority": -1}}, 422, "bad_job"),
    "priority as text": ({"opts": {"priority": "1"}}, 422, "invalid_request"),
    "priority as a fraction": ({"opts": {"priority": 1.5}}, 422, "invalid_request"),
    "negative delay": ({"opts": {"delay": -1}}, 422, "bad_job"),
    "unknown option": ({"opts": {"debounce": {"id": "x"}}}, 422, "invalid_request"),
    "jitter": ({"opts": {"backoff": {"type": "fixed", "jitter": 2}}}, 422, "bad_job"),
    "no name": ({"name": ""}, 422, "bad_job"),
    "empty deduplication id": ({"opts": {"deduplication": {"id": ""}}}, 422, "bad_job"),
}


@pytest.mark.parametrize("fault", BAD_JOBS)
@clause("B-19")
def test_b19_a_bad_job_is_refused(api: httpx.Client, fault: str, plain: Plain) -> None:
    body, status, code = BAD_JOBS[fault]
    document = problem(api.post(JOB, json={"name": "job", **body}), status, code)
    assert "\n" not in str(document["detail"])
    assert not plain.call("EXISTS", "bull:mail:meta"), "nothing is written"


@clause("B-19")
def test_b19_bad_bodies(api: httpx.Client, plain: Plain) -> None:
    nan = b'{"name": "job", "data": {"x": NaN}}'
    headers = {"content-type": "application/json"}
    problem(api.post(JOB, content=nan, headers=headers), 400, "invalid_json")
    lone = b'{"name": "job", "data": "\\ud800"}'
    problem(api.post(JOB, content=lone, headers=headers), 400, "invalid_json")
    deep = b'{"name": "job", "data": ' + b"[" * 20_000 + b"]" * 20_000 + b"}"
    problem(api.post(JOB, content=deep, headers=headers), 400, "invalid_json")
    many = {"jobs": [{"name": "job"}] * 1001}
    problem(api.post(JOB, json=many), 413, "bulk_too_large")
    large = {"jobs": [{"name": "job", "data": "x" * (6 << 20)}] * 2}
    assert api.post(JOB, json=large).status_code == 413
    problem(api.post(JOB, json={"jobs": []}), 422, "invalid_request")
    faulty = problem(api.post(JOB, json={"jobs": [{"name": 1}] * 900}), 422, "invalid_request")
    (only,) = cast("list[dict[str, str]]", faulty["errors"])
    assert only["pointer"] == "/jobs/0/name", "the first fault ends the check"
    video = {"name": "video-generation", "data": {"videoId": "v"}}
    problem(api.post("/v1/queues/video-generation/jobs", json=video), 422, "bad_job")
    assert not plain.call("EXISTS", "bull:mail:meta", "bull:video-generation:meta")


@clause("B-19")
def test_b19_unknown_queues_states_and_ids(served: ServedQueues, api: httpx.Client) -> None:
    problem(api.get("/v1/queues/nope"), 404, "queue_not_found")
    problem(api.get("/v1/queues/nope/events"), 404, "queue_not_found")
    problem(api.post("/v1/queues/nope/pause"), 404, "queue_not_found")
    problem(api.get("/v1/queues/a:b"), 422, "bad_queue_name")
    problem(api.get(f"/v1/queues/{'x' * 201}"), 422, "bad_queue_name")
    served.add("mail")
    problem(api.get(JOB, params={"state": "paused"}), 422, "invalid_request")
    problem(api.get(JOB, params={"first": -1}), 422, "invalid_request")
    problem(api.get(JOB, params={"limit": 0}), 422, "invalid_request")
    problem(api.post("/v1/queues/mail/clean", json={"state": "nope"}), 422, "unknown_state")
    problem(api.post("/v1/queues/mail/clean", json={"grace_ms": -1}), 422, "bad_job")
    for job_id in ("nope", "meta", "0:1", "wait"):
        problem(api.get(f"{JOB}/{job_id}"), 404, "job_not_found")
        problem(api.get(f"{JOB}/{job_id}/events"), 404, "job_not_found")
        problem(api.delete(f"{JOB}/{job_id}"), 404, "job_not_found")
        for verb in ("retry", "promote", "cancel"):
            problem(api.post(f"{JOB}/{job_id}/{verb}"), 404, "job_not_found")
    problem(api.get("/v1/queues/mail/events", headers={"last-event-id": "x"}), 400, "bad_event_id")


@clause("B-19")
def test_b19_a_key_that_belongs_to_a_job_or_a_queue_is_no_job(
    served: ServedQueues, api: httpx.Client, plain: Plain
) -> None:
    """The keys of a queue share one prefix: `17:logs` is no id, although such a key exists."""
    api.put("/v1/queues/mail/schedulers/nightly", json={"repeat": {"every": 60_000}})
    (iteration,) = api.get(JOB).json()["jobs"]
    job_id = served.add("mail")
    own = {"bull:mail:repeat:nightly", f"bull:mail:{job_id}:processed", f"bull:mail:{job_id}:logs"}
    plain.call("HSET", f"bull:mail:{job_id}:processed", "bull:films:1", "null")
    plain.call("RPUSH", f"bull:mail:{job_id}:logs", "a line")
    for key_name in own:
        other = f"{JOB}/{key_name.removeprefix('bull:mail:')}"
        problem(api.get(other), 404, "job_not_found")
        problem(api.get(f"{other}/wire"), 404, "job_not_found")
        problem(api.delete(other), 404, "job_not_found")
        problem(api.post(f"{other}/cancel"), 404, "job_not_found")
    assert plain.call("EXISTS", *own) == len(own)
    assert api.get(f"{JOB}/{iteration['id']}").json()["scheduler"] == "nightly"
    problem(api.post(f"{JOB}/{iteration['id']}/cancel"), 409, "scheduled")
    plain.call("HSET", "bull:mail:user:42", "name", "other", "data", "{}", "opts", "{}")
    assert api.get(f"{JOB}/user:42").json()["name"] == "other", "older programs accept such ids"


@clause("B-19")
def test_b19_jobs_of_other_programs_are_shown(
    served: ServedQueues, api: httpx.Client, plain: Plain
) -> None:
    served.add("mail")
    plain.call("HSET", "bull:mail:odd", "data", b"\xff{", "opts", "[", "progress", "25%")
    plain.call("LPUSH", "bull:mail:wait", "odd", "ghost")
    listed = api.get(JOB).json()["jobs"]
    assert [job["id"] for job in listed] == ["1", "odd"]
    assert listed[1]["problem"]
    assert api.get(f"{JOB}/odd").json()["problem"] == listed[1]["problem"]


@clause("B-19", "O-2")
def test_b19_numbers_that_no_decoder_takes_do_not_hide_a_page(
    served: ServedQueues, api: httpx.Client, plain: Plain, tmp_path: Path
) -> None:
    """Regression: `jobwire queue jobs` ended with 3, as if the gateway were not reachable. Node
    reads such a number as Infinity."""
    served.add("mail")
    large = "9" * 5_000
    fields = ("name", "a", "data", '{"a": 1e400}', "opts", "{}", "timestamp", 1)
    plain.call("HSET", "bull:mail:odd", *fields, "progress", "1e400", "returnvalue", f"[-{large}]")
    plain.call("LPUSH", "bull:mail:wait", "odd")
    listed = msgspec.json.decode(api.get(JOB).content)["jobs"]
    odd = next(job for job in listed if job["id"] == "odd")
    assert (odd["data"], odd["progress"], odd["problem"] != "") == ('{"a": 1e400}', 0, True)
    env = {"JOBWIRE_URL": str(api.base_url).rstrip("/")}
    done = jobwire("queue", "jobs", "mail", cwd=tmp_path, env=env)
    assert (done.returncode, '"odd"' in done.stdout) == (0, True)


@clause("B-19")
def test_b19_a_job_whose_id_is_not_utf8_is_listed_with_the_others(
    served: ServedQueues, api: httpx.Client, plain: Plain
) -> None:
    """Another program wrote it, in each state: no page with it is an error."""
    served.add("mail")
    odd, shown, now_ms = b"\xffodd", "?odd", round(time.time() * 1000)
    fields = ("name", b"\xfe", "data", "{}", "opts", "{}", "timestamp", now_ms, "parentKey", odd)
    plain.call("HSET", b"bull:mail:" + odd, *fields, "failedReason", odd, "workerId", odd)
    for name in ("wait", "paused", "active"):
        plain.call("RPUSH", f"bull:mail:{name}", odd)
    for name in ("prioritized", "delayed", "waiting-children", "completed", "failed"):
        plain.call("ZADD", f"bull:mail:{name}", now_ms, odd)
    for state in queue_jobs.STATES:
        listed = api.get(JOB, params={"state": state}).json()["jobs"]
        assert shown in [job["id"] for job in listed], state
        page = api.get("/v1/queues/mail/summaries", params={"state": state}).json()
        assert shown in [job["id"] for job in page["jobs"]], state
    assert api.get("/v1/queues/mail/summaries", params={"q": "odd"}).json()["jobs"]
    plain.call("SET", "bull:mail:de:x", odd)
    body = {"name": "send", "opts": {"deduplication": {"id": "x", "ttl": 1000}}}
    plain.call("PEXPIRE", "bull:mail:de:x", 60_000)
    (added,) = api.post(JOB, json=body).json()["jobs"]
    assert added == {"id": shown, "outcome": "deduplicated"}
    plain.call("DEL", b"bull:mail:" + odd)  # the check for leaks reads keys as text


@clause("B-19")
def test_b19_a_server_that_refuses_is_unavailable(
    served: ServedQueues, api: httpx.Client, plain: Plain
) -> None:
    served.add("mail")
    plain.call("DEL", "bull:mail:wait")
    plain.call("SET", "bull:mail:wait", "not a list")
    problem(api.get(JOB), 503, "unavailable")
    plain.call("SET", "bull:mail:events", "not a stream")
    problem(api.get("/v1/queues/mail/events"), 503, "unavailable")


@clause("B-12")
def test_b12_a_request_that_waits_is_answered_when_the_gateway_stops(
    valkey: LocalValkey, plain: Plain
) -> None:
    def reads() -> int:
        return plain.info("commandstats").get("cmdstat_xrevrange", {}).get("calls", 0)

    with ServedQueues(valkey.url) as stopping, ThreadPoolExecutor(1) as pool:
        job_id = stopping.add("mail")
        before = reads()
        waiting = pool.submit(stopping.queue_job, "mail", job_id, wait_s=60)
        wait_until_sync(lambda: reads() > before, "the read of the last event, by the waiter")
        stopping.stop()
        assert waiting.result(30)["state"] == "waiting"


# Tenants


@pytest.fixture(scope="module")
def keyed(valkey: LocalValkey) -> Iterator[ServedQueues]:
    keys = (
        key("reader", "read", tenant="acme"),
        key("writer", "submit", "read", tenant="acme"),
        key("boss", "admin", tenant="acme"),
        key("other", "admin", tenant="globex"),
        key("all", "read", tenant="*"),
    )
    settings = QueuesSettings(tenants=("films=acme",))
    with ServedQueues(valkey.url, settings, GatewaySettings(keys=keys)) as running:
        yield running


@clause("B-18", "O-6")
def test_b18_a_queue_is_for_its_tenant(keyed: ServedQueues, valkey: LocalValkey) -> None:
    api, body = keyed.client, {"name": "job"}

    def status(name: str, method: str, path: str, **more: Any) -> int:
        return api.request(method, f"/v1/queues{path}", headers=bearer(name), **more).status_code

    def names(name: str) -> set[str]:
        listed = api.get("/v1/queues", headers=bearer(name)).json()["queues"]
        return {queue["name"] for queue in listed}

    assert api.get("/v1/queues").status_code == 401
    assert status("writer", "POST", "/films/jobs", json=body) == 201
    assert status("reader", "POST", "/films/jobs", json=body) == 403, "the scope"
    assert status("other", "POST", "/films/jobs", json=body) == 404, "another tenant"
    assert status("reader", "GET", "/films") == status("all", "GET", "/films") == 200
    assert status("other", "GET", "/films") == 404
    assert status("writer", "POST", "/films/pause") == 403
    assert status("boss", "POST", "/films/pause") == 200
    # A queue that is not mapped is for the scope `admin`.
    assert status("writer", "POST", "/mail/jobs", json=body) == 404
    assert status("boss", "POST", "/mail/jobs", json=body) == 201
    assert status("reader", "GET", "/mail/jobs/1/events") == 404
    assert status("other", "GET", "/mail/jobs/1") == 200
    child = {**body, "opts": {"parent": {"id": "1", "queue": "mail"}}}
    assert status("writer", "POST", "/films/jobs", json=child) == 404, "the parent's queue"
    assert status("writer", "POST", "/films/flows", json=child) == 404
    assert status("boss", "POST", "/films/jobs", json=child) == 201
    assert names("reader") == {"films"}
    assert "films" not in names("other")


@clause("B-12", "O-9")
def test_b12_every_route_is_documented(api: httpx.Client) -> None:
    paths = api.get("/openapi.json").json()["paths"]
    queues = {path: set(paths[path]) for path in paths if path.startswith("/v1/queues")}
    assert len(queues) == 33
    assert queues["/v1/queues/{queue}/jobs/{job_id}"] == {"get", "delete"}


@clause("O-15", "B-12")
def test_o15_a_page_of_jobs_is_bounded_in_bytes(served: ServedQueues, fresh: Fresh) -> None:
    """Regression: a page with twelve jobs of 9 MB took 3 GB and 15 s."""
    queue = fresh("large")
    ids = [served.add(queue, data={"text": "x" * 400_000}) for _ in range(5)]
    found: list[str] = []
    first: int | None = 0
    while first is not None:
        answer = served.client.get(f"/v1/queues/{queue}/jobs?state=waiting&first={first}")
        assert len(answer.content) < 1_100_000
        page = answer.json()
        found += [job["id"] for job in page["jobs"]]
        first = page["next"]
    assert found == ids


@clause("O-15", "B-12")
def test_o15_the_data_of_a_job_is_sent_on_without_being_decoded(
    served: ServedQueues, fresh: Fresh
) -> None:
    """Regression: its data was decoded and encoded again, at a hundred bytes for each byte."""
    queue, text = fresh("many"), b'{"z":1.0, "a":[1,\t2]}'
    body = b'{"name":"job","data":%b}' % text
    answer = served.client.post(f"/v1/queues/{queue}/jobs", content=body)
    (job,) = answer.json()["jobs"]
    shown = served.client.get(f"/v1/queues/{queue}/jobs/{job['id']}")
    assert shown.json()["data"] == {"z": 1.0, "a": [1, 2]}
