"""B-12, B-18, B-19: flows, schedulers and obliterate over HTTP, as clients use them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from jobwire.gateway.settings import GatewaySettings
from jobwire.local import LocalValkey
from jobwire.systems.queues.settings import QueuesSettings
from tests.support import Plain, clause, wait_until_sync
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


@pytest.fixture
def api(served: ServedQueues) -> httpx.Client:
    return served.client


def add_flow(api: httpx.Client, queue: str, flow: dict[str, Any]) -> dict[str, Any]:
    answer = api.post(f"/v1/queues/{queue}/flows", json=flow)
    assert answer.status_code == 201, answer.text
    return answer.json()


def tree(api: httpx.Client, queue: str, job_id: str, **query: Any) -> dict[str, Any]:
    answer = api.get(f"/v1/queues/{queue}/jobs/{job_id}/flow", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


# Flows


@clause("B-12", "B-8")
def test_b12_a_flow_is_added_and_read_as_a_tree(served: ServedQueues, api: httpx.Client) -> None:
    ignored = {"name": "fail", "queueName": SERVED, "opts": {"ignoreDependencyOnFailure": True}}
    flow = {
        "name": "join",
        "data": {"n": 1},
        "children": [
            {"name": "echo", "queueName": SERVED, "data": {"n": 2}},
            ignored,
            {"name": "wait", "children": [{"name": "leaf", "opts": {"delay": 60_000}}]},
        ],
    }
    made = add_flow(api, "films", flow)
    done, failed, waits = made["children"]
    assert (made["queue"], done["queue"], waits["queue"]) == ("films", SERVED, "films")
    for child in (done, failed):
        served.queue_job(SERVED, child["id"], wait_s=30)
    read = tree(api, "films", made["id"])
    root = read["job"]
    assert read["parent"] is None
    assert (root["name"], root["state"]) == ("join", "waiting-children")
    assert root["counts"] == {"completed": 1, "failed": 0, "ignored": 1, "pending": 1}
    states = {child["id"]: (child["name"], child["state"]) for child in root["children"]}
    assert states == {
        done["id"]: ("echo", "completed"),
        failed["id"]: ("fail", "failed"),
        waits["id"]: ("wait", "waiting-children"),
    }
    (below,) = [child for child in root["children"] if child["id"] == waits["id"]]
    (leaf,) = below["children"]
    assert (leaf["state"], leaf["children"]) == ("delayed", [])
    # From the middle: the parent above, the child below.
    middle = tree(api, "films", waits["id"])
    assert middle["parent"]["id"] == made["id"]
    assert middle["parent"]["children"] == []
    assert [child["id"] for child in middle["job"]["children"]] == [leaf["id"]]
    assert tree(api, "films", leaf["id"])["parent"]["id"] == waits["id"]
    # The parent runs when its last child has ended.
    api.post(f"/v1/queues/films/jobs/{leaf['id']}/promote")
    assert served.queue_job("films", leaf["id"])["state"] == "waiting"


@clause("B-12")
def test_b12_a_tree_is_bounded_in_depth_width_and_size(
    served: ServedQueues, api: httpx.Client
) -> None:
    children = [{"name": "leaf", "children": [{"name": "last"}]} for _ in range(130)]
    made = add_flow(api, "films", {"name": "join", "children": children})
    flat = tree(api, "films", made["id"], depth=1, width=7)["job"]
    assert len(flat["children"]) == 7
    assert flat["counts"]["pending"] == 130
    assert all(child["children"] == [] for child in flat["children"])
    assert all(child["counts"]["pending"] == 1 for child in flat["children"])
    assert tree(api, "films", made["id"], depth=1, width=7)["job"] == flat, "the same order"
    whole = tree(api, "films", made["id"], width=200)["job"]
    below = sum(len(child["children"]) for child in whole["children"])
    assert (len(whole["children"]), below) == (130, 69), "200 jobs in all"


@clause("B-12")
def test_b12_a_deleted_child_is_shown_as_its_parent_recorded_it(
    served: ServedQueues, api: httpx.Client
) -> None:
    gone = {"name": "echo", "queueName": SERVED, "opts": {"removeOnComplete": True, "jobId": "a"}}
    made = add_flow(api, "films", {"name": "join", "children": [gone, {"name": "leaf"}]})

    def child() -> dict[str, Any]:
        (found,) = [
            each for each in tree(api, "films", made["id"])["job"]["children"] if each["id"] == "a"
        ]
        return found

    wait_until_sync(lambda: child()["removed"], "the child to be deleted")
    assert (child()["state"], child()["name"]) == ("completed", "")


BAD_FLOWS: dict[str, tuple[dict[str, Any], int, str, str]] = {
    "another queue": ({"queueName": "mail"}, 422, "bad_job", "queueName"),
    "policy of the root": (
        {"opts": {"failParentOnFailure": True}},
        *(422, "bad_job", "failParentOnFailure"),
    ),
    "two policies": (
        {
            "children": [
                {
                    "name": "a",
                    "opts": {"failParentOnFailure": True, "ignoreDependencyOnFailure": True},
                }
            ]
        },
        *(422, "bad_job", "flow.children[0]: failParentOnFailure and ignoreDependencyOnFailure"),
    ),
    "bad child": (
        {"children": [{"name": "a"}, {"name": "b", "children": [{"name": ""}]}]},
        *(422, "bad_job", "flow.children[1].children[0]: the job name"),
    ),
    "bad queue of a child": (
        {"children": [{"name": "a", "queueName": "a:b"}]},
        *(422, "bad_queue_name", "a:b"),
    ),
    "deduplication": (
        {"children": [{"name": "a", "opts": {"deduplication": {"id": "x"}}}]},
        *(422, "bad_job", "deduplicated"),
    ),
    "payload of a queue with a schema": (
        {"children": [{"name": "a", "queueName": "video-generation"}]},
        *(422, "bad_job", "flow.children[0]: the data does not fit"),
    ),
    "children that are no list": ({"children": {}}, 422, "invalid_request", ""),
    "unknown member": ({"prefix": "x"}, 422, "invalid_request", ""),
    "too wide": ({"children": [{"name": "a"}] * 1000}, 413, "bulk_too_large", "1000 jobs"),
}


@pytest.mark.parametrize("fault", BAD_FLOWS)
@clause("B-19")
def test_b19_a_bad_flow_is_refused_and_creates_nothing(
    api: httpx.Client, fault: str, plain: Plain
) -> None:
    body, status, code, detail = BAD_FLOWS[fault]
    document = problem(api.post("/v1/queues/films/flows", json={"name": "j", **body}), status, code)
    assert detail in str(document)
    assert "\n" not in str(document["detail"])
    assert plain.call("KEYS", "bull:*:[!e]*") == [], "nothing is written"


@clause("B-19")
def test_b19_deep_and_large_flows_are_refused(api: httpx.Client, plain: Plain) -> None:
    path = "/v1/queues/films/flows"
    deep: dict[str, Any] = {"name": "leaf"}
    for _ in range(60):
        deep = {"name": "node", "children": [deep]}
    problem(api.post(path, json=deep), 413, "bulk_too_large")
    headers = {"content-type": "application/json"}
    endless = b'{"name":"a","children":[' * 20_000 + b"]}" * 20_000
    problem(api.post(path, content=endless, headers=headers), 400, "invalid_json")
    large = {"name": "a", "data": "x" * 5_500_000}
    answer = api.post(path, json={**large, "children": [large]})
    problem(answer, 413, "bulk_too_large")
    nan = b'{"name": "a", "children": [{"name": "b", "data": NaN}]}'
    problem(api.post(path, content=nan, headers=headers), 400, "invalid_json")
    assert plain.call("EXISTS", "bull:films:meta") == 0


@clause("B-19")
def test_b19_a_job_of_another_parent_refuses_the_whole_flow(api: httpx.Client) -> None:
    child = {"name": "leaf", "opts": {"jobId": "mine"}}
    add_flow(api, "films", {"name": "join", "children": [child]})
    flow = {"name": "join", "opts": {"jobId": "second"}, "children": [{"name": "a"}, child]}
    problem(api.post("/v1/queues/films/flows", json=flow), 409, "has_parent")
    problem(api.get("/v1/queues/films/jobs/second"), 404, "job_not_found")


@clause("B-19")
def test_b19_trees_of_bad_ids_and_of_foreign_keys(
    served: ServedQueues, api: httpx.Client, plain: Plain
) -> None:
    problem(api.get("/v1/queues/nope/jobs/1/flow"), 404, "queue_not_found")
    job_id = served.add("films")
    for bad in ("nope", "meta", "0:1"):
        problem(api.get(f"/v1/queues/films/jobs/{bad}/flow"), 404, "job_not_found")
    path = f"/v1/queues/films/jobs/{job_id}/flow"
    for query in ({"depth": 0}, {"depth": 51}, {"width": 0}, {"width": 201}, {"depth": "x"}):
        problem(api.get(path, params=query), 422, "invalid_request")
    # A job that is its own child and parent, keys of other prefixes, keys that are not of a job.
    own = f"bull:films:{job_id}"
    plain.call("SADD", f"{own}:dependencies", own, "other:films:1", "bull:films", "bull::", b"\xff")
    plain.call("HSET", own, "parentKey", own, "progress", "25%")
    job = tree(api, "films", job_id)["job"]
    assert job["counts"]["pending"] == 5
    levels = 0
    while job["children"]:
        (job,) = job["children"]
        levels += 1
    assert levels == 10


# Schedulers


@clause("B-12", "B-8")
def test_b12_schedulers_are_set_listed_with_next_runs_and_removed(
    served: ServedQueues, api: httpx.Client
) -> None:
    path = "/v1/queues/films/schedulers"
    served.add("films")
    assert api.get(path).json() == {"schedulers": [], "total": 0, "next": None}
    cron: dict[str, Any] = {
        "repeat": {"pattern": "0 0 3 1 1 *", "tz": "Europe/Berlin"},
        "name": "report",
    }
    answer = api.put(f"{path}/yearly", json=cron)
    assert answer.status_code == 200, answer.text
    first = answer.json()
    assert first["job_id"] == f"repeat:yearly:{first['next']}"
    hourly = {"repeat": {"every": 3_600_000, "limit": 2}, "data": {"n": 1}, "opts": {"attempts": 2}}
    api.put(f"{path}/hourly", json=hourly)
    listed = api.get(path).json()
    assert [each["id"] for each in listed["schedulers"]] == ["hourly", "yearly"]
    every, yearly = listed["schedulers"]
    assert (every["name"], every["data"], every["opts"]["attempts"]) == ("hourly", {"n": 1}, 2)
    assert every["next_runs"] == [every["next"], every["next"] + 3_600_000], "the limit is two"
    assert (yearly["name"], yearly["next"], len(yearly["next_runs"])) == (
        "report",
        first["next"],
        3,
    )
    days = [
        (later - earlier) // 86_400_000
        for earlier, later in zip(yearly["next_runs"], yearly["next_runs"][1:], strict=False)
    ]
    assert set(days) <= {365, 366}
    assert yearly["repeat"]["pattern"] == cron["repeat"]["pattern"]
    page = api.get(path, params={"limit": 1}).json()
    assert (len(page["schedulers"]), page["total"], page["next"]) == (1, 2, 1)
    # Set again it is changed: one scheduler, one job. The first job of an interval waits at once.
    api.put(f"{path}/hourly", json={"repeat": {"every": 7_200_000}})
    assert api.get(f"{path}/hourly").json()["repeat"]["every"] == 7_200_000
    counts = api.get("/v1/queues/films").json()["counts"]
    assert (counts["waiting"], counts["delayed"]) == (2, 1)
    for scheduler in ("hourly", "yearly"):
        assert api.delete(f"{path}/{scheduler}").status_code == 204
        problem(api.delete(f"{path}/{scheduler}"), 404, "scheduler_not_found")
        problem(api.get(f"{path}/{scheduler}"), 404, "scheduler_not_found")
    assert api.get("/v1/queues/films").json()["counts"]["delayed"] == 0


@clause("B-12", "B-8")
def test_b12_an_ended_scheduler_has_no_next_run(served: ServedQueues, api: httpx.Client) -> None:
    path = f"/v1/queues/{SERVED}/schedulers/short"
    api.put(path, json={"repeat": {"every": 50, "limit": 2}, "name": "echo"})

    def ended() -> bool:
        completed = api.get(f"/v1/queues/{SERVED}").json()["counts"]["completed"]
        return completed == 2 and api.get(path).json()["next"] is None

    wait_until_sync(ended, "two jobs of the scheduler")
    shown = api.get(path).json()
    assert (shown["made"], shown["next_runs"]) == (2, [])
    none_due = {"repeat": {"pattern": "0 3 * * *", "limit": 0}}
    answer = api.put(f"/v1/queues/{SERVED}/schedulers/none", json=none_due)
    assert answer.json() == {"id": "none", "job_id": None, "next": None}


BAD_SCHEDULERS: dict[str, tuple[str, dict[str, Any], str]] = {
    "neither": ("a", {"repeat": {}}, "bad_job"),
    "both": ("a", {"repeat": {"every": 1000, "pattern": "* * * * *"}}, "bad_job"),
    "no cron": ("a", {"repeat": {"pattern": "every day"}}, "bad_job"),
    "no such day": ("a", {"repeat": {"pattern": "0 0 30 2 *"}}, "bad_job"),
    "no such zone": ("a", {"repeat": {"pattern": "0 3 * * *", "tz": "Nowhere/X"}}, "bad_job"),
    "negative interval": ("a", {"repeat": {"every": -5}}, "bad_job"),
    "interval as text": ("a", {"repeat": {"every": "5"}}, "invalid_request"),
    "offset beyond the interval": ("a", {"repeat": {"every": 10, "offset": 10}}, "bad_job"),
    "end is over": ("a", {"repeat": {"every": 1000, "endDate": 1000}}, "bad_job"),
    "id of a job": ("a:1767225600000", {"repeat": {"every": 1000}}, "bad_job"),
    "an id for its job": ("a", {"repeat": {"every": 1000}, "opts": {"jobId": "x"}}, "bad_job"),
    "a delay": ("a", {"repeat": {"every": 1000}, "opts": {"delay": 5}}, "bad_job"),
    "no repeat": ("a", {"name": "x"}, "invalid_request"),
    "long pattern": ("a", {"repeat": {"pattern": "*" * 300}}, "invalid_request"),
}


@pytest.mark.parametrize("fault", BAD_SCHEDULERS)
@clause("B-19")
def test_b19_a_bad_scheduler_is_refused(api: httpx.Client, fault: str, plain: Plain) -> None:
    scheduler, body, code = BAD_SCHEDULERS[fault]
    document = problem(api.put(f"/v1/queues/films/schedulers/{scheduler}", json=body), 422, code)
    assert "\n" not in str(document["detail"])
    assert plain.call("EXISTS", "bull:films:repeat") == 0


@clause("B-19")
def test_b19_schedulers_that_other_programs_wrote_are_shown(
    served: ServedQueues, api: httpx.Client, plain: Plain
) -> None:
    served.add("films")
    plain.call("ZADD", "bull:films:repeat", 5_000_000_000_000, "odd", 1, "bare")
    fields = ("name", b"\xff", "pattern", "*" * 500, "tz", "Nowhere/X", "data", "{", "limit", "x")
    plain.call("HSET", "bull:films:repeat:odd", *fields)
    plain.call("HSET", "bull:films:repeat:odd:5000000000000", "timestamp", 1)
    plain.call("HSET", "bull:films:repeat:odd:5000000000000", "name", "x")
    bare, odd = api.get("/v1/queues/films/schedulers").json()["schedulers"]
    assert (bare["id"], bare["next"]) == ("bare", None)
    assert (odd["next"], odd["data"], odd["next_runs"]) == (5_000_000_000_000, None, [odd["next"]])


@clause("B-19")
def test_b19_a_scheduler_whose_next_job_exists_is_refused(
    served: ServedQueues, api: httpx.Client
) -> None:
    """The job of the earlier scheduler runs; its id is that of the new one's next job."""
    path = f"/v1/queues/{SERVED}/schedulers/s"
    body = {"repeat": {"pattern": "0 0 3 1 1 *"}, "name": "hold"}
    job_id = api.put(path, json=body).json()["job_id"]
    api.post(f"/v1/queues/{SERVED}/jobs/{job_id}/promote")
    wait_until_sync(lambda: served.queue_job(SERVED, job_id)["state"] == "active")
    api.delete(path)
    problem(api.put(path, json=body), 409, "scheduler_busy")
    api.delete(f"/v1/queues/{SERVED}/jobs/{job_id}")
    assert served.queue_job(SERVED, job_id, wait_s=30)["state"] == "failed"


# Obliterate


@clause("B-12", "B-8")
def test_b12_obliterate_deletes_a_queue(
    served: ServedQueues, api: httpx.Client, plain: Plain
) -> None:
    served.add("films")
    served.add("films", delay=60_000)
    api.put("/v1/queues/films/schedulers/s", json={"repeat": {"every": 60_000}})
    assert api.post("/v1/queues/films/obliterate").json() == {"count": 3}
    assert plain.call("KEYS", "bull:films:*") == []
    problem(api.post("/v1/queues/nope/obliterate"), 404, "queue_not_found")
    problem(api.post("/v1/queues/films/obliterate", json={"force": "yes"}), 422, "invalid_request")


@clause("B-12", "B-19")
def test_b12_obliterate_of_a_queue_that_workers_serve_needs_force(
    served: ServedQueues, api: httpx.Client, plain: Plain
) -> None:
    job_id = served.add(SERVED, "hold")
    wait_until_sync(lambda: served.queue_job(SERVED, job_id)["progress"] == 1)
    problem(api.post(f"/v1/queues/{SERVED}/obliterate"), 409, "queue_active")
    assert api.get(f"/v1/queues/{SERVED}").json()["paused"] is False, "it continues"
    forced = api.post(f"/v1/queues/{SERVED}/obliterate", json={"force": True})
    assert forced.json() == {"count": 1}
    assert plain.call("EXISTS", f"bull:{SERVED}:{job_id}") == 0


# Tenants


@pytest.fixture(scope="module")
def keyed(valkey: LocalValkey) -> Iterator[ServedQueues]:
    keys = (
        key("reader", "read", tenant="acme"),
        key("writer", "submit", "read", tenant="acme"),
        key("boss", "admin", "read", "submit", tenant="acme"),
        key("other", "submit", "read", tenant="globex"),
    )
    settings = QueuesSettings(tenants=("films=acme", "clips=acme", "mail=globex"))
    with ServedQueues(valkey.url, settings, GatewaySettings(keys=keys)) as running:
        yield running


@clause("B-18", "O-6")
def test_b18_flows_and_schedulers_are_for_the_tenants_of_their_queues(
    keyed: ServedQueues, plain: Plain
) -> None:
    api = keyed.client

    def ask(name: str, method: str, path: str, **more: Any) -> httpx.Response:
        return api.request(method, f"/v1/queues{path}", headers=bearer(name), **more)

    flow = {"name": "join", "children": [{"name": "cut", "queueName": "clips"}]}
    assert ask("reader", "POST", "/films/flows", json=flow).status_code == 403
    assert ask("other", "POST", "/films/flows", json=flow).status_code == 404
    foreign = {"name": "join", "children": [{"name": "cut", "queueName": "mail"}]}
    problem(ask("writer", "POST", "/films/flows", json=foreign), 404, "queue_not_found")
    assert plain.call("EXISTS", "bull:mail:meta", "bull:films:meta") == 0
    made = ask("writer", "POST", "/films/flows", json=flow).json()
    path = f"/films/jobs/{made['id']}/flow"
    assert len(ask("reader", "GET", path).json()["job"]["children"]) == 1
    assert ask("other", "GET", path).status_code == 404
    # A child of another tenant's queue, as a Node program may add it, is counted and not shown.
    plain.call("SADD", f"bull:films:{made['id']}:dependencies", "bull:mail:1")
    plain.call("HSET", "bull:mail:1", "name", "secret", "parentKey", f"bull:films:{made['id']}")
    plain.call("HSET", "bull:mail:1", "timestamp", 1)
    shown = ask("reader", "GET", path).json()["job"]
    assert (len(shown["children"]), shown["counts"]["pending"]) == (1, 2)
    above = ask("other", "GET", "/mail/jobs/1/flow").json()
    assert (above["job"]["name"], above["parent"]) == ("secret", None)
    # Schedulers and obliterate change the queue itself: scope admin.
    repeat = {"repeat": {"every": 60_000}}
    assert ask("writer", "PUT", "/films/schedulers/s", json=repeat).status_code == 403
    assert ask("boss", "PUT", "/mail/schedulers/s", json=repeat).status_code == 404
    assert ask("boss", "PUT", "/films/schedulers/s", json=repeat).status_code == 200
    assert ask("reader", "GET", "/films/schedulers").json()["total"] == 1
    assert ask("other", "GET", "/films/schedulers").status_code == 404
    assert ask("writer", "DELETE", "/films/schedulers/s").status_code == 403
    assert ask("boss", "DELETE", "/films/schedulers/s").status_code == 204
    assert ask("writer", "POST", "/films/obliterate").status_code == 403
    assert ask("boss", "POST", "/mail/obliterate").status_code == 404
    assert ask("boss", "POST", "/films/obliterate").status_code == 200


@clause("B-12", "O-9")
def test_b12_the_routes_are_documented(api: httpx.Client) -> None:
    paths = api.get("/openapi.json").json()["paths"]
    assert set(paths["/v1/queues/{queue}/schedulers/{scheduler_id}"]) == {"get", "put", "delete"}
    for path in ("/v1/queues/{queue}/flows", "/v1/queues/{queue}/jobs/{job_id}/flow"):
        (operation,) = paths[path].values()
        assert operation["description"]
