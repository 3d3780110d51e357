"""B-12: lists without data and the keys of a job, which the page reads."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from jobwire.gateway.settings import GatewaySettings
from jobwire.local import LocalValkey
from jobwire.systems.queues.settings import QueuesSettings
from tests.support import Plain, clause
from tests.support.jobs_http import bearer, key, problem
from tests.systems.queues.served import SERVED, ServedQueues, worker_connected


@pytest.fixture(scope="module")
def _served(valkey: LocalValkey) -> Iterator[ServedQueues]:
    with ServedQueues(valkey.url, worker=True) as running:
        worker_connected(valkey)
        yield running


@pytest.fixture
def served(_served: ServedQueues, valkey: LocalValkey) -> ServedQueues:
    """One gateway and worker for all tests; the server is emptied after each."""
    assert valkey.alive
    return _served


def summaries(served: ServedQueues, queue: str, **query: Any) -> dict[str, Any]:
    answer = served.client.get(f"/v1/queues/{queue}/summaries", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def ids(page: dict[str, Any]) -> list[str]:
    return [job["id"] for job in page["jobs"]]


def wire_keys(served: ServedQueues, queue: str, job_id: str) -> dict[str, dict[str, Any]]:
    answer = served.client.get(f"/v1/queues/{queue}/jobs/{job_id}/wire")
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["job_id"], body["wire"]) == (job_id, "bullmq")
    return {each["key"]: each for each in body["keys"]}


@clause("B-12")
def test_b12_summaries_by_state_and_page_without_data(served: ServedQueues) -> None:
    added = [served.add("mail", "send", {"secret": "hush"}, attempts=3) for _ in range(5)]
    first = summaries(served, "mail", state="waiting", limit=2)
    assert (ids(first), first["total"], first["next"]) == (added[:2], 5, 2)
    second = summaries(served, "mail", state="waiting", limit=3, first=2)
    assert (ids(second), second["next"]) == (added[2:], None)
    assert "hush" not in str(first)
    assert (first["jobs"][0]["name"], first["jobs"][0]["attempts"]) == ("send", 3)

    delayed = served.add("mail", "later", delay=60_000)
    (job,) = summaries(served, "mail", state="delayed")["jobs"]
    assert job["id"] == delayed
    assert job["due_ts"] == job["timestamp"] + 60_000

    failed = served.add(SERVED, "fail")
    served.queue_job(SERVED, failed, wait_s=30)
    (job,) = summaries(served, SERVED, state="failed")["jobs"]
    assert "no disk" in job["failed_reason"]
    assert job["finished_on"] >= job["processed_on"] >= job["timestamp"]


@clause("B-12")
def test_b12_summaries_by_a_part_of_name_or_id(served: ServedQueues) -> None:
    for number in range(3):
        served.add("mail", f"send-{number}")
    late = served.add("mail", "Send-later", delay=60_000)
    custom = served.add("mail", "other", jobId="order-4711", delay=60_000)
    one = summaries(served, "mail", state="waiting", q="SEND-1")
    assert ([job["name"] for job in one["jobs"]], one["scanned"]) == (["send-1"], 3)
    everywhere = summaries(served, "mail", q="send")
    assert len(everywhere["jobs"]) == 4
    stamps = [job["timestamp"] for job in everywhere["jobs"]]
    assert stamps == sorted(stamps, reverse=True), "the newest first"
    assert late in ids(everywhere)
    assert ids(summaries(served, "mail", q="4711")) == [custom]
    exact = summaries(served, "mail", q=late)
    assert ids(exact)[0] == late, "an id comes first"
    assert exact["jobs"][0]["due_ts"] == exact["jobs"][0]["timestamp"] + 60_000
    assert summaries(served, "mail", q="nothing")["jobs"] == []


@clause("B-12", "B-19")
def test_b19_summaries_of_jobs_of_other_programs(served: ServedQueues, plain: Plain) -> None:
    served.add("mail")
    plain.call("HSET", "bull:mail:odd", "name", b"\xff" * 500, "opts", "[", "progress", "25%")
    plain.call("LPUSH", "bull:mail:wait", "odd", "ghost")
    page = summaries(served, "mail", state="waiting")
    assert ids(page) == ["1", "odd", "ghost"]
    assert len(page["jobs"][1]["name"]) <= 400
    assert page["jobs"][1]["progress"] is None
    # A producer that knows only the published contract writes no field `priority`.
    plain.call("HSET", "bull:mail:odd", "opts", '{"priority": 5}')
    assert summaries(served, "mail", state="waiting")["jobs"][1]["priority"] == 5
    # Older programs move the waiting jobs of a paused queue to another list.
    plain.call("RENAME", "bull:mail:wait", "bull:mail:paused")
    page = summaries(served, "mail", state="waiting")
    assert (ids(page), page["total"], page["next"]) == (["1", "odd", "ghost"], 3, None)
    path = "/v1/queues/mail/summaries"
    problem(served.client.get(path, params={"state": "nope"}), 422, "invalid_request")
    problem(served.client.get(path, params={"q": "x" * 256}), 422, "invalid_request")
    problem(served.client.get("/v1/queues/nope/summaries"), 404, "queue_not_found")


@clause("B-12")
def test_b12_the_keys_of_a_job(served: ServedQueues, plain: Plain) -> None:
    data = {"text": "x" * 6_000}
    job_id = served.add("mail", "send", data, deduplication={"id": "d1"}, delay=60_000)
    keys = wire_keys(served, "mail", job_id)
    job = keys[f"bull:mail:{job_id}"]
    fields = {each["name"]: each for each in job["fields"]}
    assert job["type"] == "hash"
    assert job["size"] == len(fields) == plain.call("HLEN", f"bull:mail:{job_id}")
    assert next(iter(fields)) == "name"
    stored = str(plain.call("HGET", f"bull:mail:{job_id}", "data"))
    assert stored.startswith(fields["data"]["value"])
    assert len(stored) > 6_000
    assert fields["data"]["cut"] == len(stored) - len(fields["data"]["value"])
    assert job["command"] == ["HGETALL", f"bull:mail:{job_id}"]
    assert job["path"] == f"/v1/queues/mail/jobs/{job_id}"
    assert keys["bull:mail:delayed"]["command"] == ["ZSCORE", "bull:mail:delayed", job_id]
    assert keys["bull:mail:de:d1"]["value"] == job_id
    names = [entry["fields"][0]["value"] for entry in keys["bull:mail:events"]["entries"]]
    assert names == ["added", "delayed"]

    steps = served.add(SERVED, "steps")
    served.queue_job(SERVED, steps, wait_s=30)
    keys = wire_keys(served, SERVED, steps)
    (line,) = keys[f"bull:{SERVED}:{steps}:logs"]["entries"]
    assert line["fields"][0]["value"] == "half of it"
    assert keys[f"bull:{SERVED}:completed"]["type"] == "zset"
    marks = {each["name"]: each.get("extra") for each in keys[f"bull:{SERVED}:{steps}"]["fields"]}
    assert marks["workerId"] is True
    assert marks["returnvalue"] is None


@clause("B-12", "B-19")
def test_b19_the_keys_of_a_job_are_any_bytes(served: ServedQueues, plain: Plain) -> None:
    served.add("mail")
    plain.call("HSET", "bull:mail:odd", b"\xffname", b"\xfe{", "deid", "x", "rjk", "y")
    plain.call("SET", "bull:mail:odd:logs", "no list")
    keys = wire_keys(served, "mail", "odd")
    assert set(keys) == {"bull:mail:odd", "bull:mail:events"}
    for job_id in ("nope", "meta", "wait"):
        answer = served.client.get(f"/v1/queues/mail/jobs/{job_id}/wire")
        problem(answer, 404, "job_not_found")


@clause("B-18", "O-6")
def test_b18_lists_and_keys_are_for_the_tenant_of_the_queue(valkey: LocalValkey) -> None:
    keys = (key("writer", "submit", "read", tenant="acme"), key("other", "admin", tenant="globex"))
    settings = QueuesSettings(tenants=("films=acme",))
    with ServedQueues(valkey.url, settings, GatewaySettings(keys=keys)) as keyed:
        api: httpx.Client = keyed.client
        made = api.post("/v1/queues/films/jobs", json={"name": "a"}, headers=bearer("writer"))
        path = f"/v1/queues/films/jobs/{made.json()['jobs'][0]['id']}/wire"
        for each in (path, "/v1/queues/films/summaries"):
            assert api.get(each, headers=bearer("writer")).status_code == 200
            assert api.get(each, headers=bearer("other")).status_code == 404
            assert api.get(each).status_code == 401


@clause("O-11", "B-14")
@pytest.mark.parametrize(
    ("reason", "stack", "code"),
    [
        ("no disk", ["Traceback …\n  File …\nValueError: no disk\n"], "ValueError"),
        ("no disk", ["TypeError: no disk\n    at run (/app/job.js:3:9)"], "TypeError"),
        (
            "no disk",
            ["KeyError: no disk\n", "Traceback\nbuilds.DiskFull: no disk\n"],
            "builds.DiskFull",
        ),
        ("no disk:\nfull", ["Traceback\nOSError: no disk:\nfull\n"], "OSError"),
        ("ValueError: no disk", ["TypeError: no disk"], "ValueError"),
        ("no disk", ["it said TypeError: no disk"], ""),
        ("no disk", ["no disk"], ""),
        ("„", ["ValueError: „\n"], ""),
        ("", ["ValueError\n"], ""),
        ("no disk", [f"ValueError: no disk{'x' * 40_000}"], ""),
        ("no disk", "not an array", ""),
    ],
)
def test_o11_failures_have_the_type_of_the_exception(
    served: ServedQueues, plain: Plain, reason: str, stack: object, code: str
) -> None:
    plain.call("HSET", "bull:mail:7", "name", "send", "failedReason", reason)
    plain.call("HSET", "bull:mail:7", "stacktrace", json.dumps(stack, ensure_ascii=False))
    plain.call("ZADD", "bull:mail:failed", int(time.time() * 1000), "7")
    served.add("mail", "send")  # the gateway knows the queue
    answer = served.client.get("/v1/failures?hours=2")
    assert answer.status_code == 200, answer.text
    (kind,) = answer.json()["failures"]
    assert (kind["task"], kind["code"]) == ("send", code)


@clause("O-11", "O-15")
def test_o11_hostile_stacks_do_not_block_the_server(served: ServedQueues, plain: Plain) -> None:
    """Ten thousand places in each of a thousand stacks took the server longer than a reply may."""
    now_ms, stack = int(time.time() * 1000), json.dumps([": x" * 10_000])
    for number in range(1_000):
        row = ("name", "send", "failedReason", "x", "stacktrace", stack)
        plain.call("HSET", f"bull:mail:{number}", *row)
        plain.call("ZADD", "bull:mail:failed", now_ms, str(number))
    served.add("mail", "send")  # the gateway knows the queue
    answer = served.client.get("/v1/failures?hours=2")
    assert answer.status_code == 200, answer.text
    (kind,) = answer.json()["failures"]
    assert (kind["task"], kind["code"], kind["count"]) == ("send", "", 1_000)
