"""O-11, O-6, B-18: one gateway process with all four systems: overview, failures, search, workers,
statistics, for callers of several tenants."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import httpx
import psutil
import pytest

from jobwire import Client
from jobwire.api.operation import Operation
from jobwire.local import LocalValkey
from jobwire.objects import BucketConfig
from tests.fleet.runner import Fleet
from tests.gateway.test_api_examples import OPERATIONS
from tests.page.site import click_text, serious_violations, show, until
from tests.support import Fresh, clause, wait_until_sync
from tests.support.browser import PHONE, Browser
from tests.support.jobs_http import bearer, key
from tests.support.s3 import boto_client, make_bucket
from tests.systems.images.site import plain_photo, put

Json = dict[str, Any]
KEYS: Final = (
    key("boss", "admin"),
    key("acme", "submit", "read", tenant="acme"),
    key("globex", "submit", "read", tenant="globex"),
    key("operator", "admin", tenant="*"),
    key("acme-admin", "admin", tenant="acme"),
    key("globex-admin", "admin", tenant="globex"),
)
HOSTILE: Final = "<img src=x onerror=window.hacked=1>"
MANY: Final = [f"bulk-{number:02}" for number in range(70)]


class AllSystems:
    """A gateway process, a worker process, two Valkey servers (jobs and queues) and a bucket."""

    def __init__(self, folder: Path, bucket: BucketConfig) -> None:
        self.fleet = Fleet(folder)
        self.queue_server = LocalValkey(folder / "queues", admin=True)
        self.bucket = bucket

    @contextlib.contextmanager
    def running(self) -> Generator[AllSystems]:
        keys = [
            {"name": each.name, "hash": each.hash, "scopes": each.scopes, "tenant": each.tenant}
            for each in KEYS
        ]
        settings = {
            "JOBWIRE_GATEWAY_KEYS": json.dumps(keys),
            "JOBWIRE_QUEUES_TENANTS": "mail=acme",
            "JOBWIRE_QUEUES_NAMES": ",".join(MANY),
            "JOBWIRE_OBJECTS_ENDPOINT": self.bucket.endpoint,
            "JOBWIRE_OBJECTS_BUCKET": self.bucket.bucket,
            "JOBWIRE_OBJECTS_ACCESS_KEY": self.bucket.access_key,
            "JOBWIRE_OBJECTS_SECRET_KEY": self.bucket.secret_key,
            "JOBWIRE_IMAGES_DETECT": "none",
            "JOBWIRE_IMAGES_WORKERS": "1",
            "JOBWIRE_PREDICTIONS_TENANT": "acme",
        }
        with self.fleet, self.queue_server:
            queues = {"JOBWIRE_QUEUES_URL": self.queue_server.url}
            gateway = self.fleet.start_gateway(**settings, **queues)
            self.gateway = psutil.Process(gateway.pid)
            self.fleet.start_worker("tests.contracts.all_systems_app:app", **queues)
            with httpx.Client(base_url=self.fleet.url, timeout=30, trust_env=False) as client:
                self.client = client
                yield self

    def get(self, name: str, path: str) -> Json:
        answer = self.client.get(path, headers=bearer(name))
        assert answer.status_code == 200, answer.text
        return answer.json()

    def until(self, name: str, path: str, condition: Callable[[Json], Any]) -> Any:
        """Read until the condition is met; its result. Overviews are cached for a moment."""
        return wait_until_sync(lambda: condition(self.get(name, path)), f"{path} for {name}")

    def row(self, key_name: str, system: str, /, **expected: object) -> Json:
        """The first row of a system that has these values."""

        def found(body: Json) -> Json | None:
            rows = [row for row in body["systems"] if row["system"] == system]
            return next((row for row in rows if expected.items() <= row.items()), None)

        return self.until(key_name, "/v1/overview", found)

    def submit(self, name: str, task: str) -> str:
        body: Json = {"task": task, "payload": {}}
        answer = self.client.post("/v1/jobs", json=body, headers=bearer(name))
        assert answer.status_code == 202, answer.text
        return answer.json()["job_id"]

    def add(self, name: str, queue: str, task: str, **opts: object) -> str:
        body: Json = {"name": task, "data": {}, "opts": opts}
        path = f"/v1/queues/{queue}/jobs"
        answer = self.client.post(path, json=body, headers=bearer(name))
        assert answer.status_code == 201, answer.text
        (job,) = answer.json()["jobs"]
        return job["id"]

    def ended(self, queue: str, job_id: str) -> Json:
        """A job of a queue, when it has ended."""
        headers = {**bearer("acme"), "prefer": "wait=20"}

        def found() -> Json | None:
            answer = self.client.get(f"/v1/queues/{queue}/jobs/{job_id}", headers=headers)
            return answer.json() if answer.json().get("state") in ("completed", "failed") else None

        return cast(Json, wait_until_sync(found, f"the end of {job_id}"))

    def announce(self, name: str) -> Json:
        body = {"content_type": "image/jpeg", "filename": f"{name}.jpg"}
        answer = self.client.post("/v1/images", json=body, headers=bearer(name))
        assert answer.status_code == 201, answer.text
        return answer.json()

    def image_ended(self, name: str, image_id: str) -> Json:
        path = f"/v1/images/{image_id}"
        return self.until(name, path, lambda image: image["status"] != "processing" and image)

    def write_task(self, prediction_id: str, status: str, code: str | None = None) -> None:
        """A task of another program, which writes to the bucket only."""
        document = {
            "prediction_id": prediction_id,
            "chat_id": 7,
            "input_s3_key": "images/input/x.jpg",
            "status": status,
            "created_at": "2026-01-21T12:34:56Z",
            "error": {"code": code, "message": None},
        }
        boto_client(self.bucket).put_object(
            Bucket=self.bucket.bucket,
            Key=f"tasks/{prediction_id}.json",
            Body=json.dumps(document).encode(),
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, seaweedfs: BucketConfig) -> Iterator[AllSystems]:
    bucket = replace(seaweedfs, bucket=Fresh()("all-systems"))
    make_bucket(bucket)
    with AllSystems(tmp_path_factory.mktemp("all"), bucket).running() as running:
        yield running


def systems_of(body: Json) -> set[str]:
    return {row["system"] for row in body["systems"]}


def failing(body: Json) -> set[str]:
    return {kind["system"] for kind in body["failures"]}


# ── /v1/overview ─────────────────────────────────────────────────────────────────────────────────


@clause("O-11", "O-13")
def test_o11_the_overview_has_rows_of_all_systems(site: AllSystems) -> None:
    site.write_task("overview-1", "processing")
    site.write_task("overview-2", "queued")
    delayed = site.add("acme", "mail", "echo", delay=3_600_000)
    job_id = site.add("acme", "mail", "echo")
    assert site.ended("mail", job_id)["state"] == "completed"
    image = site.announce("acme")

    def all_rows(body: Json) -> dict[str, Json] | None:
        rows = {row["system"]: row for row in body["systems"]}
        complete = (
            rows.keys() == {"jobs", "queues", "images", "predictions"}
            and rows["queues"]["delayed"] >= 1
            and rows["queues"]["done"] >= 1
            and rows["queues"]["workers"] == 1
            and rows["images"]["delayed"] >= 1
            and rows["predictions"]["running"] >= 1
        )
        return rows if complete and body["unavailable"] == [] else None

    rows = site.until("acme", "/v1/overview", all_rows)
    assert [row["wire"] for row in rows.values()] == ["streams", "bullmq", "images", "predictions"]
    mail = rows["queues"]
    assert (mail["name"], mail["submitted"], mail["canceled"]) == ("mail", None, 0)
    assert len(mail["ended_by_minute"]) == len(mail["failed_by_minute"]) == 60
    assert mail["duration_ms"]["p90"] is not None
    assert rows["images"]["submitted"] >= 1
    assert rows["predictions"]["waiting"] >= 1
    assert rows["predictions"]["oldest_waiting_ms"] >= 0

    answer = put(site.client, image, plain_photo())
    assert answer.status_code == 202, answer.text
    assert site.image_ended("acme", image["image_id"])["status"] == "ready"
    site.client.delete(f"/v1/queues/mail/jobs/{delayed}", headers=bearer("acme"))


@clause("O-6", "O-11", "B-18")
def test_o06_tenants_see_only_their_own_rows_jobs_and_failures(site: AllSystems) -> None:
    site.write_task("secret-of-acme", "failed", "content_refused")
    job_id = site.add("acme", "mail", "fail")
    site.ended("mail", job_id)
    image_id = site.announce("acme")["image_id"]
    site.row("acme", "images")
    site.row("acme", "queues", name="mail")
    site.row("acme", "predictions")

    other = site.get("globex", "/v1/overview")
    assert systems_of(other) == {"jobs", "images"}
    (images,) = (row for row in other["systems"] if row["system"] == "images")
    assert (images["submitted"], images["delayed"]) == (0, 0)
    for text in (job_id, image_id, "secret-of-acme", "fail", "acme.jpg"):
        assert site.get("globex", f"/v1/search?q={text}")["found"] == [], text
        assert site.get("acme", f"/v1/search?q={text}")["found"], text
    assert site.get("globex", "/v1/failures")["failures"] == []
    assert {each["system"] for each in site.get("globex", "/v1/workers")["workers"]} <= {
        "jobs",
        "images",
    }
    assert site.get("globex", "/v1/stats?system=queues")["now"]["waiting"] == 0
    answer = site.client.get("/v1/failures?tenant=acme", headers=bearer("globex"))
    assert answer.status_code == 403
    hidden = {"queues", "predictions"}
    site.until("operator", "/v1/failures?tenant=acme", lambda body: hidden <= failing(body))
    assert hidden.isdisjoint(failing(site.get("boss", "/v1/failures")))


@clause("O-11", "B-18")
def test_o11_of_many_queues_the_busiest_are_shown_and_the_others_counted(site: AllSystems) -> None:
    last = MANY[-1]
    job_id = site.add("boss", last, "echo")
    row = site.row("boss", "queues", name=last, waiting=1)
    assert (row["workers"], row["oldest_waiting_ms"] >= 0) == (0, True)
    body = site.get("boss", "/v1/overview")
    shown = [row["name"] for row in body["systems"] if row["system"] == "queues"]
    assert len(shown) == 50
    assert body["left_out"] >= len(MANY) - 50
    assert "mail" not in shown, "it belongs to another tenant"
    assert systems_of(site.get("acme", "/v1/overview")) >= {"queues"}
    site.client.delete(f"/v1/queues/{last}/jobs/{job_id}", headers=bearer("boss"))


@clause("O-11", "O-4")
def test_o11_a_server_that_is_down_is_named_and_the_others_are_shown(site: AllSystems) -> None:
    site.row("acme", "queues", name="mail")
    site.queue_server.kill()
    try:

        def without_queues(body: Json) -> Json | None:
            # A system that was late once is named, too.
            return body if [each["system"] for each in body["unavailable"]] == ["queues"] else None

        body = site.until("acme", "/v1/overview", without_queues)
        assert systems_of(body) == {"jobs", "images", "predictions"}
        (down,) = body["unavailable"]
        assert (down["system"], bool(down["detail"])) == ("queues", True)
        for path in ("/v1/failures", "/v1/search?q=x", "/v1/workers", "/v1/stats"):
            assert site.until("acme", path, without_queues), path
        answer = site.client.get("/v1/stats?system=queues", headers=bearer("acme"))
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        ready = site.client.get("/readyz")
        (part,) = (each for each in ready.json()["parts"] if each["name"] == "queues")
        assert (ready.status_code, part["state"]) == (200, "degraded")
        assert "no connection to queues.url;" in part["note"]
    finally:
        site.queue_server.start()
    site.row("acme", "queues", name="mail")


# ── /v1/failures and /v1/search ──────────────────────────────────────────────────────────────────


@clause("O-11")
def test_o11_failures_of_all_systems_are_grouped_by_kind(site: AllSystems) -> None:
    jobs = [site.add("acme", "mail", "fail") for _ in range(2)]
    for job_id in jobs:
        assert site.ended("mail", job_id)["failed_reason"].startswith("no disk ")
    site.write_task("kinds-1", "failed", "provider_failed")
    site.submit("acme", "fail")
    image = site.announce("acme")
    answer = put(site.client, image, plain_photo()[:-40])
    assert answer.status_code == 202, answer.text
    failed = site.image_ended("acme", image["image_id"])
    assert failed["status"] == "failed"

    def all_kinds(body: Json) -> list[Json] | None:
        wanted = {"jobs", "queues", "images", "predictions"}
        return body["failures"] if failing(body) == wanted else None

    kinds = site.until("acme", "/v1/failures?hours=2", all_kinds)
    queues = next(each for each in kinds if each["system"] == "queues")
    assert (queues["name"], queues["task"], queues["code"]) == ("mail", "fail", "ValueError")
    assert queues["message"] == "no disk …"
    assert queues["count"] >= 2
    assert queues["count"] == sum(queues["by_hour"])
    assert queues["sample_job_id"] in jobs
    images = next(each for each in kinds if each["system"] == "images")
    assert (images["code"], images["sample_job_id"]) == (
        failed["error"]["code"],
        image["image_id"],
    )
    body = site.get("acme", "/v1/failures?hours=2")
    assert body["scanned"] == body["total"] == body["count"]


@clause("O-11")
def test_o11_a_search_finds_by_id_in_all_systems(site: AllSystems) -> None:
    site.write_task("search-1", "succeeded")
    queue_job = site.add("acme", "mail", "echo", jobId="order.4711")
    image_id = site.announce("acme")["image_id"]
    job_id = site.submit("acme", "echo")
    for text, system, name in (
        (queue_job, "queues", "mail"),
        (image_id, "images", "images"),
        ("search-1", "predictions", "predictions"),
        (job_id, "jobs", "jobs"),
    ):
        body = site.get("acme", f"/v1/search?q={text}")
        assert [(each["system"], each["name"], each["id"]) for each in body["found"]] == [
            (system, name, text)
        ]
        assert body["found"][0]["created_ts"] > 0
    named = site.get("acme", "/v1/search?q=ORDER.47")["found"]
    assert [each["id"] for each in named] == ["order.4711"]
    # The queue's own keys are no jobs.
    for text in ("meta", "events", "completed", "order.4711:logs"):
        assert site.get("acme", f"/v1/search?q={text}")["found"] == [], text


# ── /v1/workers and /v1/stats ────────────────────────────────────────────────────────────────────


@clause("O-11")
def test_o11_workers_of_all_wires_each_process_once(site: AllSystems) -> None:
    job_id = site.add("acme", "mail", "hold")

    def holding(body: Json) -> Json | None:
        return next(
            (
                worker
                for worker in body["workers"]
                if any(slot["job_id"] == job_id for slot in worker["running"])
            ),
            None,
        )

    worker = site.until("acme", "/v1/workers", holding)
    assert (worker["system"], worker["ours"]) == ("jobs", True)
    assert {("bullmq", "mail")} <= {(each["wire"], each["queue"]) for each in worker["serves"]}
    (slot,) = worker["running"]
    assert (slot["task"], slot["wire"], slot["queue"]) == ("hold", "bullmq", "mail")
    listed = site.get("acme", "/v1/workers")["workers"]
    assert [each["name"] for each in listed if each["pid"] == worker["pid"]] == [worker["name"]]
    assert not [each for each in listed if each["system"] == "queues"]
    assert [each["handlers"] for each in listed if each["system"] == "images"] == [["results"]]
    of_queues = site.get("acme", "/v1/workers?wire=bullmq")["workers"]
    assert [each["pid"] for each in of_queues] == [worker["pid"]]
    site.client.delete(f"/v1/queues/mail/jobs/{job_id}", headers=bearer("acme"))
    site.ended("mail", job_id)


@clause("O-11")
def test_o11_statistics_are_summed_and_chosen_by_system_or_wire(site: AllSystems) -> None:
    site.ended("mail", site.add("acme", "mail", "echo"))
    queues = site.until("acme", "/v1/stats?wire=bullmq", lambda body: body["hour"]["done"] and body)
    assert (queues["hour"]["submitted"], len(queues["minutes"])) == (None, 60)
    assert queues["hour"]["done"] == sum(minute["done"] for minute in queues["minutes"])
    assert queues["hour"]["duration_ms"]["p50"] is not None
    site.submit("acme", "echo")
    jobs = site.until("acme", "/v1/stats?system=jobs", lambda body: body["hour"]["done"] and body)
    both = site.get("acme", "/v1/stats")
    assert both["hour"]["done"] >= queues["hour"]["done"] + jobs["hour"]["done"]
    assert both["hour"]["submitted"] >= jobs["hour"]["submitted"]
    assert both.keys() == {"now", "hour", "minutes"}
    with Client(site.fleet.url, api_key="jw_acme") as client:
        assert client.stats(wire="bullmq").hour.submitted is None
        assert client.stats().hour.done >= jobs["hour"]["done"]
        assert {each.system for each in client.workers(system="images")} == {"images"}
        assert {each.wire for each in client.overview().systems} >= {"streams", "bullmq"}
    for query in ("system=none", "wire=none"):
        for path in ("/v1/stats", "/v1/workers"):
            answer = site.client.get(f"{path}?{query}", headers=bearer("acme"))
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


@clause("O-6")
def test_o06_settings_name_no_other_tenant(site: AllSystems) -> None:
    """An administrator of a tenant sees the program's settings, not who else uses it."""

    def seen(name: str) -> tuple[set[str], list[str]]:
        values = {
            each["name"]: each["value"] for each in site.get(name, "/v1/settings")["settings"]
        }
        return {each["tenant"] for each in values["gateway.keys"]}, values["queues.tenants"]

    everything = ({each.tenant for each in KEYS}, ["mail=acme"])
    assert seen("operator") == everything
    assert seen("acme-admin") == ({"acme"}, ["mail=acme"])
    assert seen("globex-admin") == ({"globex"}, [])


# ── bodies ───────────────────────────────────────────────────────────────────────────────────────

PLACEHOLDER: Final = '"unknown members":0'
WITH_BODY: Final[list[Operation[Any]]] = [
    each for each in OPERATIONS.values() if each.body is not None or each.takes is not None
]


def objects_in(value: object) -> Iterator[Json]:
    """An object and those inside it."""
    if isinstance(value, dict):
        members = cast("Json", value)
        yield members
        value = list(members.values())
    if isinstance(value, list):
        for child in cast("list[object]", value):
            yield from objects_in(child)


def bodies_with_unknown_members(operation: Operation[Any], members: str) -> Iterator[bytes]:
    """The example of the operation, with as many more members as fit, and some thousands in each
    object inside it."""
    places = len(list(objects_in(json.loads(json.dumps(operation.body_example)))))
    for place in range(places):
        example = json.loads(json.dumps(operation.body_example))
        list(objects_in(example))[place]["unknown members"] = 0
        if operation.tag == "openai":
            # These routes ignore unknown members, and would wait for a worker.
            example["model"] = 0
        text = json.dumps(example, separators=(",", ":"))
        size = (operation.max_body or 1 << 20) if place == 0 else 100_000
        fitting = members[: size - len(text)].rpartition(",")[0]
        yield text.replace(PLACEHOLDER, fitting).encode()


@clause("O-15")
def test_o15_a_million_unknown_members_cost_little_on_every_route(site: AllSystems) -> None:
    """Regression: all faults of a body were collected before the first fifty were shown; 1.2
    million unknown members took 8 s of CPU and 3 GB."""
    members = ",".join([f'"{number}":1' for number in range(1_200_000)])
    headers = {**bearer("operator"), "content-type": "application/json"}
    refused = 0
    for operation in WITH_BODY:
        assert operation.body_example is not None, f"{operation.label} has no example"
        path = operation.path.replace("{queue}", "mail")
        for content in bodies_with_unknown_members(operation, members):
            before_s, before = sum(site.gateway.cpu_times()[:2]), site.gateway.memory_info().rss
            answer = site.client.request(operation.method, path, content=content, headers=headers)
            used_s = sum(site.gateway.cpu_times()[:2]) - before_s
            grown = site.gateway.memory_info().rss - before
            assert answer.status_code < 500, (operation.label, answer.text)
            assert answer.is_success or len(answer.content) < 10_000, operation.label
            assert used_s < 1, (operation.label, used_s)
            assert grown < 200 << 20, (operation.label, grown)
            refused += answer.status_code == 422
    assert refused > len(WITH_BODY) // 2


# ── the page ─────────────────────────────────────────────────────────────────────────────────────


@clause("O-4", "O-11")
def test_o04_now_failures_and_workers_over_all_systems(site: AllSystems, browser: Browser) -> None:
    failed = site.add("acme", "mail", HOSTILE)
    assert site.ended("mail", failed)["state"] == "failed"
    held = site.add("acme", "mail", "hold")
    site.write_task("page-1", "failed", "content_refused")
    site.announce("acme")
    with browser.page() as page:
        page.open(f"{site.fleet.url}/livez")
        page.run("sessionStorage.setItem('jobwire.key', 'jw_acme')")
        page.open(f"{site.fleet.url}/#/")
        for name in ("jobs", "mail", "images", "predictions"):
            page.until_text(".systems", name)
        links = page.run("[...document.querySelectorAll('.systems a')].map((each) => each.hash)")
        # The queues of jobs are below their system.
        assert [each for each in links if each != "#/jobs?wire=bullmq"] == [
            *("#/jobs", "#/jobs?wire=bullmq&queue=mail", "#/images", "#/predictions")
        ]

        show(page, site.fleet.url, "#/failures", "content_refused")
        page.until_text(".faults", HOSTILE)
        rows = "[...document.querySelectorAll('.faults > li')]"
        row = f"{rows}.find((each) => each.innerText.includes({json.dumps(HOSTILE)}))"
        page.run(f"{row}.querySelector('a').click()")
        page.until_text(".faults .more", "has a handler for")
        assert page.run(f"{row}.querySelector('.more a').hash") == f"#/jobs/bullmq/mail/{failed}"
        assert serious_violations(page) == []
        page.run(f"{row}.querySelector('button').click()")
        page.until_text("dialog", "wait in the queue mail again")
        click_text(page, "dialog button", "Run 1 again")
        page.until_text("main", "1 job submitted again.")

        show(page, site.fleet.url, "#/workers")
        page.until_text(".workers", "mail")
        until(page, f"document.querySelector('.held a[href=\"#/jobs/bullmq/mail/{held}\"]')", "it")
        assert "results" in page.text(".workers")
        assert serious_violations(page) == []
        page.resize(PHONE)
        for route, part in (("#/", "systems"), ("#/failures", "faults"), ("#/workers", "workers")):
            show(page, site.fleet.url, route)
            until(page, f"document.querySelector('main .{part} li, main .{part} td')", part)
            assert page.run("document.documentElement.scrollWidth <= innerWidth"), route
        assert page.run("!window.hacked && !document.querySelector('#root img, #root script')")
    site.client.delete(f"/v1/queues/mail/jobs/{held}", headers=bearer("acme"))
    site.ended("mail", held)
