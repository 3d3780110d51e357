"""B-26: changes of jobs from outside, over HTTP, by the client and by commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobwire import Client
from jobwire.cli.main import main
from jobwire.client import ApiError, NoSuchJob
from jobwire.gateway.settings import GatewaySettings
from jobwire.local import LocalValkey
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.systems.queues.settings import QueuesSettings
from tests.support import Plain, clause
from tests.support.jobs_http import bearer, key, problem
from tests.support.raw import Raw
from tests.systems.queues.served import ServedQueues

QUEUE = "idle"
KEY = f"bull:{QUEUE}:"
JOB = f"{KEY}j"
SETUP: dict[str, Any] = {"name": "job", "data": {"n": 1}, "opts": {"jobId": "j", "delay": 60_000}}
FLOW: dict[str, Any] = {
    "name": "join",
    "opts": {"jobId": "root"},
    "children": [{"name": "cut", "opts": {"jobId": "c"}}],
}


@pytest.fixture(scope="module")
def _served(valkey: LocalValkey) -> Iterator[ServedQueues]:
    with ServedQueues(valkey.url) as running:
        yield running


@pytest.fixture
def served(
    _served: ServedQueues, valkey: LocalValkey, monkeypatch: pytest.MonkeyPatch
) -> ServedQueues:
    """A gateway, and a queue with a delayed job `j` and a flow `root` of one child `c`."""
    assert valkey.alive
    monkeypatch.setenv("JOBWIRE_URL", _served.url)
    api = _served.client
    assert api.post(f"/v1/queues/{QUEUE}/jobs", json=SETUP).is_success
    assert api.post(f"/v1/queues/{QUEUE}/flows", json=FLOW).is_success
    return _served


Found = Callable[[Raw], object]


def field(name: str) -> Found:
    return lambda raw: raw.fields(JOB).get(name)


def lines(raw: Raw) -> object:
    return raw.call("LRANGE", f"{JOB}:logs", 0, -1)


def of_flow(raw: Raw) -> object:
    """Whether the child is there, whether it has its parent, and whether the root still waits."""
    exists = raw.call("EXISTS", f"{KEY}c") == 1
    waits = raw.call("ZSCORE", f"{KEY}waiting-children", "root") is not None
    return exists, "parentKey" in raw.fields(f"{KEY}c") if exists else False, waits


JOB_VERBS: dict[str, tuple[str, str, Any, Found, object]] = {
    "priority": ("PUT", "j/priority", {"priority": 7}, field("priority"), "7"),
    "delay": ("PUT", "j/delay", {"delay": 120_000}, field("delay"), "120000"),
    "data": ("PUT", "j/data", {"data": {"n": "é"}}, field("data"), '{"n":"é"}'),
    "data null": ("PUT", "j/data", {"data": None}, field("data"), "null"),
    "progress": ("PUT", "j/progress", {"progress": {"at": 2}}, field("progress"), '{"at":2}'),
    "message": ("PUT", "j/progress", {"progress": 250, "message": "half"}, lines, ["half"]),
    "log": ("POST", "j/logs", {"line": "more"}, lines, ["more"]),
    "detach": ("POST", "c/detach", None, of_flow, (True, False, False)),
    "children": ("DELETE", "root/children", None, of_flow, (False, False, False)),
}


@clause("B-26")
@pytest.mark.parametrize("verb", JOB_VERBS)
def test_b26_a_job_is_changed_over_http(served: ServedQueues, plain: Plain, verb: str) -> None:
    method, path, body, found, expected = JOB_VERBS[verb]
    api, raw = served.client, Raw(plain)
    assert found(raw) != expected
    answer = api.request(method, f"/v1/queues/{QUEUE}/jobs/{path}", json=body)
    assert answer.status_code == 200, answer.text
    assert found(raw) == expected
    missing = path.replace(path.split("/")[0], "nope", 1)
    gone = api.request(method, f"/v1/queues/{QUEUE}/jobs/{missing}", json=body)
    problem(gone, 404, "job_not_found")
    problem(api.request(method, f"/v1/queues/nope/jobs/{path}", json=body), 404, "queue_not_found")
    assert not raw.call("EXISTS", f"{KEY}nope", f"{KEY}nope:logs")


@clause("B-26")
def test_b26_a_log_is_cleared(served: ServedQueues, plain: Plain) -> None:
    path = f"/v1/queues/{QUEUE}/jobs/j/logs"
    for number in range(4):
        assert served.client.post(path, json={"line": str(number), "keep": 3}).is_success
    assert lines(Raw(plain)) == ["1", "2", "3"]
    assert served.client.delete(path, params={"keep": 1}).status_code == 204
    assert lines(Raw(plain)) == ["3"]
    assert served.client.delete(path).status_code == 204
    assert lines(Raw(plain)) == []
    gone = served.client.delete(f"/v1/queues/{QUEUE}/jobs/nope/logs")
    problem(gone, 404, "job_not_found")


@clause("B-26", "B-19")
@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("PUT", "j/priority", {"priority": -1}, 422, "bad_job"),
        ("PUT", "j/priority", {"priority": 1 << 40}, 422, "bad_job"),
        ("PUT", "c/delay", {"delay": 1}, 409, "wrong_state"),
        ("PUT", "j/delay", {"delay": -1}, 422, "bad_job"),
        ("PUT", "j/data", {}, 422, "invalid_request"),
        ("PUT", "j/progress", {"progress": "x" * 20_000}, 413, "too_large"),
        ("POST", "j/logs", {"line": "x", "keep": -1}, 422, "bad_job"),
        ("POST", "j/detach", None, 409, "wrong_state"),
    ],
)
def test_b26_bad_changes_are_refused(
    served: ServedQueues, method: str, path: str, body: Any, status: int, code: str
) -> None:
    answer = served.client.request(method, f"/v1/queues/{QUEUE}/jobs/{path}", json=body)
    problem(answer, status, code)


@clause("B-26", "B-13")
def test_b26_new_data_fits_the_schema_of_the_queue(served: ServedQueues) -> None:
    data = {
        "videoId": "v",
        "userId": "u",
        "script": {
            "title": "t",
            "scenes": [{"sceneNumber": 1, "duration": 1, "voiceover": "", "imagePrompt": ""}],
        },
    }
    job_id = served.add("video-generation", "video", data)
    path = f"/v1/queues/video-generation/jobs/{job_id}/data"
    problem(served.client.put(path, json={"data": {"videoId": 1}}), 422, "bad_job")
    assert served.client.put(path, json={"data": {**data, "videoId": "w"}}).is_success


@clause("B-26", "B-18", "J-57")
def test_b26_changes_are_for_the_tenant_and_within_its_bytes(valkey: LocalValkey) -> None:
    keys = (
        *(key("acme", "submit", "read", tenant="acme"), key("reader", "read", tenant="acme")),
        *(key("other", "submit", tenant="globex"), key("boss", "admin", tenant="acme")),
        key("stranger", "admin", tenant="globex"),
    )
    queues = QueuesSettings(tenants=("mail=acme",))
    limits = StreamsSettings(tenant_max_bytes=100_000)
    with ServedQueues(valkey.url, queues, GatewaySettings(keys=keys), limits=limits) as served:

        def send(name: str, method: str, path: str, body: Any = None) -> Any:
            headers = bearer(name)
            return served.client.request(method, f"/v1/queues/{path}", json=body, headers=headers)

        assert send("acme", "POST", "mail/jobs", {**SETUP, "opts": {"jobId": "j"}}).is_success
        for method, path, body, _, _ in JOB_VERBS.values():
            assert send("reader", method, f"mail/jobs/{path}", body).status_code == 403
            assert send("other", method, f"mail/jobs/{path}", body).status_code == 404
        for verb, (method, path, body, _, _) in QUEUE_VERBS.items():
            assert send("reader", method, f"mail/{path}", body).status_code == 403
            allowed = send("acme", method, f"mail/{path}", body).status_code
            assert allowed == (200 if verb == "deduplication" else 403), verb
            assert send("stranger", method, f"mail/{path}", body).status_code == 404
        large = {"data": "x" * 60_000}
        for _ in range(3):
            assert send("acme", "PUT", "mail/jobs/j/data", large).is_success, "it is replaced"
        assert send("acme", "POST", "mail/jobs/j/logs", {"line": "x" * 30_000}).is_success
        line = {"line": "x" * 30_000}
        problem(send("acme", "POST", "mail/jobs/j/logs", line), 429, "queue_full")
        problem(send("acme", "PUT", "mail/jobs/j/data", {"data": "x" * 90_000}), 429, "queue_full")

        # A parent in a queue that the caller may not see is not changed by it.
        assert send("boss", "POST", "secret/jobs", {"name": "a", "opts": {"jobId": "p"}}).is_success
        child = {"jobId": "c", "parent": {"id": "p", "queue": "secret"}}
        assert send("boss", "POST", "mail/jobs", {"name": "a", "opts": child}).is_success
        problem(send("acme", "POST", "mail/jobs/c/detach"), 404, "queue_not_found")
        assert send("boss", "POST", "mail/jobs/c/detach").is_success


def meta(*names: str) -> Found:
    return lambda raw: [raw.fields(f"{KEY}meta").get(name) for name in names]


def reply(command: str, name: str) -> Found:
    return lambda raw: raw.call(command, f"{KEY}{name}")


LIMITER = ("max", "duration")
QUEUE_VERBS: dict[str, tuple[str, str, Any, Found, object]] = {
    "concurrency": ("PUT", "concurrency", {"concurrency": 3}, meta("concurrency"), ["3"]),
    "rate limit": (
        "PUT",
        "rate-limit",
        {"max": 5, "duration": 1000},
        meta(*LIMITER),
        ["5", "1000"],
    ),
    "for a while": (
        *("POST", "rate-limit", {"for_ms": 60_000}),
        *(reply("EXISTS", "limiter"), 1),
    ),
    "deduplication": (
        *("DELETE", "deduplication?id=x/y", None),
        *(reply("EXISTS", "de:x/y"), 0),
    ),
    "events": (
        *("POST", "events/trim", {"keep": 0}),
        *(reply("XLEN", "events"), 0),
    ),
}


@clause("B-26")
@pytest.mark.parametrize("verb", QUEUE_VERBS)
def test_b26_a_queue_is_changed_over_http(served: ServedQueues, plain: Plain, verb: str) -> None:
    method, path, body, found, expected = QUEUE_VERBS[verb]
    api, raw = served.client, Raw(plain)
    owner = served.add(QUEUE, deduplication={"id": "x/y"})
    shown = api.get(f"/v1/queues/{QUEUE}/deduplication", params={"id": "x/y"}).json()
    assert shown == {"id": "x/y", "job_id": owner}
    assert found(raw) != expected
    answer = api.request(method, f"/v1/queues/{QUEUE}/{path}", json=body)
    assert answer.status_code == 200, answer.text
    assert found(raw) == expected
    problem(api.request(method, f"/v1/queues/nope/{path}", json=body), 404, "queue_not_found")
    assert raw.find("bull:nope:*") == []


@clause("B-26")
def test_b26_limits_of_a_queue_are_removed(served: ServedQueues, plain: Plain) -> None:
    api, path = served.client, f"/v1/queues/{QUEUE}"
    limit = {"max": 5, "duration": 1000}
    limits = api.put(f"{path}/concurrency", json={"concurrency": 3}).json()
    assert limits == {"concurrency": 3, "rate_limit": None}
    limits = api.put(f"{path}/rate-limit", json=limit).json()
    assert limits == {"concurrency": 3, "rate_limit": limit}
    assert api.get(path).json()["rate_limit"] == limit
    for body in ({"concurrency": 0}, {"concurrency": -1}):
        problem(api.put(f"{path}/concurrency", json=body), 422, "bad_job")
    for bad in ({"max": 5}, {"max": 0, "duration": 1}, {"max": 1, "duration": -1}):
        problem(api.put(f"{path}/rate-limit", json=bad), 422, "bad_job")
    problem(api.post(f"{path}/events/trim", json={"keep": -1}), 422, "bad_job")
    problem(api.get(f"{path}/deduplication", params={"id": "x" * 300}), 422, "invalid_request")
    assert api.put(f"{path}/concurrency", json={"concurrency": None}).is_success
    limits = api.put(f"{path}/rate-limit", json={"max": None}).json()
    assert limits == {"concurrency": None, "rate_limit": None}
    assert meta("concurrency", *LIMITER)(Raw(plain)) == [None] * 3


@clause("B-26")
def test_b26_the_client_changes_a_queue(served: ServedQueues, plain: Plain) -> None:
    raw = Raw(plain)
    owner = served.add(QUEUE, deduplication={"id": "x"})
    with Client(served.url) as client:
        queue = client.queue(QUEUE)
        queue.set_concurrency(3)
        queue.set_rate_limit(5, 1000)
        assert meta("concurrency", *LIMITER)(raw) == ["3", "5", "1000"]
        queue.set_concurrency(None)
        queue.set_rate_limit(None)
        assert meta("concurrency", *LIMITER)(raw) == [None] * 3
        queue.rate_limit(60_000)
        assert raw.call("EXISTS", f"{KEY}limiter") == 1
        queue.rate_limit(0)
        assert raw.call("EXISTS", f"{KEY}limiter") == 0
        assert queue.deduplication_owner("x") == owner
        assert queue.free_deduplication("x") is True
        assert queue.free_deduplication("x") is False
        assert queue.deduplication_owner("x") is None
        assert queue.trim_events(0) > 0


@clause("B-26")
def test_b26_the_client_changes_a_job(served: ServedQueues, plain: Plain) -> None:
    raw = Raw(plain)
    with Client(served.url) as client:
        queue = client.queue(QUEUE)
        assert queue.change_priority("j", 5).state == "delayed"
        assert queue.change_delay("j", 90_000).id == "j"
        queue.update_data("j", {"n": 2})
        queue.update_progress("j", 40, "nearly")
        assert queue.add_log("j", "more") == 2
        fields = raw.fields(JOB)
        assert (fields["priority"], fields["delay"]) == ("5", "90000")
        assert (fields["data"], fields["progress"]) == ('{"n":2}', "40")
        queue.clear_logs("j", keep=1)
        assert lines(raw) == ["more"]
        assert queue.detach("c").state == "waiting"
        assert queue.remove_pending_children("root").state == "waiting"
        with pytest.raises(NoSuchJob):
            queue.update_data("nope", {})
        with pytest.raises(ApiError, match="priority"):
            queue.change_priority("j", -1)


COMMANDS: dict[tuple[str, ...], tuple[Found, object]] = {
    ("change-priority", QUEUE, "j", "7", "--lifo"): (field("priority"), "7"),
    ("change-delay", QUEUE, "j", "120000"): (field("delay"), "120000"),
    ("update-data", QUEUE, "j", '{"n": 2}'): (field("data"), '{"n":2}'),
    ("update-progress", QUEUE, "j", "40", "--message", "half"): (lines, ["half"]),
    ("add-log", QUEUE, "j", "more", "--keep", "9"): (lines, ["half", "more"]),
    ("clear-logs", QUEUE, "j", "--keep", "1"): (lines, ["more"]),
    ("detach", QUEUE, "c"): (of_flow, (True, False, False)),
    ("remove-children", QUEUE, "root"): (of_flow, (True, False, False)),
    ("set-concurrency", QUEUE, "3"): (meta("concurrency"), ["3"]),
    ("set-concurrency", QUEUE, "none"): (meta("concurrency"), [None]),
    ("set-rate-limit", QUEUE, "5", "1000"): (meta(*LIMITER), ["5", "1000"]),
    ("set-rate-limit", QUEUE, "none"): (meta(*LIMITER), [None, None]),
    ("rate-limit", QUEUE, "60000"): (reply("EXISTS", "limiter"), 1),
    ("free-deduplication", QUEUE, "x"): (reply("EXISTS", "de:x"), 0),
    ("trim-events", QUEUE, "0"): (reply("XLEN", "events"), 0),
    ("cancel", QUEUE, "j"): (reply("EXISTS", "j"), 0),
    ("delete", QUEUE, "root"): (reply("EXISTS", "root"), 0),
}


@clause("B-26", "O-2")
def test_b26_commands_change_jobs_and_queues(
    served: ServedQueues, plain: Plain, capsys: pytest.CaptureFixture[str]
) -> None:
    served.add(QUEUE, deduplication={"id": "x"})
    for arguments, (found, expected) in COMMANDS.items():
        assert main(["queue", *arguments]) == 0, (arguments, capsys.readouterr().err)
        assert isinstance(json.loads(capsys.readouterr().out), dict)
        assert found(Raw(plain)) == expected, arguments
    assert main(["queue", "change-delay", QUEUE, "nope", "1"]) == 4
    assert main(["queue", "cancel", QUEUE, "nope"]) == 4
    assert main(["queue", "delete", QUEUE, "nope"]) == 4
    assert main(["queue", "update-data", QUEUE, "j", "{"]) == 2
    assert main(["queue", "set-concurrency", QUEUE, "many"]) == 2
    assert main(["queue", "set-rate-limit", QUEUE, "5"]) == 2
