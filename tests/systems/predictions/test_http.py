"""Tasks over HTTP: the newest ones, their history, their pictures."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from jobwire.gateway.settings import GatewaySettings
from jobwire.objects import Bucket, BucketConfig
from jobwire.systems.predictions.http import feature
from tests.gateway.server import Serving, bearer, key
from tests.support import Fresh, clause
from tests.support.s3 import boto_client, make_bucket
from tests.systems.predictions.site import Site, png


@pytest.fixture
def site(moto: BucketConfig, fresh: Fresh, cog_url: str) -> Iterator[Site]:
    config = replace(moto, bucket=fresh("shown"))
    make_bucket(config)
    with Site(config, cog_url) as started:
        yield started


@pytest.fixture
def served(site: Site) -> Iterator[Serving]:
    keys = (key("ours", "read", tenant="acme"), key("theirs", "read", tenant="globex"))
    bucket = Bucket(site.bucket.config)
    with Serving(GatewaySettings(keys=keys), feature(bucket, "acme")) as started:
        yield started


def get(served: Serving, path: str, who: str = "ours") -> Any:
    answer = served.client.get(path, headers=bearer(who))
    assert answer.status_code == 200, answer.text
    return answer.json()


def put(site: Site, name: str, body: bytes, content_type: str = "application/json") -> None:
    """Write as another program does."""
    boto_client(site.bucket.config).put_object(
        Bucket=site.bucket.config.bucket, Key=name, Body=body, ContentType=content_type
    )


@clause("P-35", "P-32")
async def test_p35_the_newest_tasks_with_their_history_and_pictures(
    site: Site, served: Serving
) -> None:
    many = site.photo(caption="two")
    # A webhook that comes before the provider's answer is recorded leaves no state `started`.
    submitted = threading.Event()
    site.receiver.plan("webhook", lambda forward: forward() if submitted.wait(60) else None)
    await site.flow.submit(many)
    submitted.set()
    await site.recover()
    refused = site.photo(caption="refused before any prediction")
    site.chat.files[refused.file_id or ""] = b"not a photo"
    await site.flow.submit(refused)

    body = get(served, "/v1/predictions/recent")
    assert (body["total"], body["open"]) == (2, 0)
    by_prompt = {each["prompt"]: each for each in body["predictions"]}
    done, failed = by_prompt["two"], by_prompt["refused before any prediction"]
    assert (done["status"], done["pictures"], done["tenant"]) == ("succeeded", 2, "acme")
    assert (failed["status"], failed["error"], failed["pictures"]) == ("failed", "not_a_photo", 0)
    # The clock of the site was moved ahead for the first one.
    assert body["predictions"][0] == max(body["predictions"], key=lambda each: each["created_at"])
    for status, prompts in (("succeeded", ["two"]), ("failed", [refused.caption]), ("open", [])):
        found = get(served, f"/v1/predictions/recent?status={status}")["predictions"]
        assert [each["prompt"] for each in found] == prompts
    assert get(served, "/v1/predictions/recent", "theirs")["predictions"] == []

    one = get(served, f"/v1/predictions/{done['id']}")
    states = [each["state"] for each in one["history"]]
    assert states == ["accepted", "submitting", "started", "finished", "settled", "delivered"]
    times = [each["at"] for each in one["history"]]
    assert times == sorted(times)
    first_refused = get(served, f"/v1/predictions/{failed['id']}")
    assert [each["state"] for each in first_refused["history"]][-1] == "delivered"


@clause("P-35", "P-32", "P-22")
async def test_p35_output_pictures_are_served_and_nothing_else(site: Site, served: Serving) -> None:
    photo = site.photo(caption="two")
    await site.flow.submit(photo)
    await site.recover()
    (task,) = get(served, "/v1/predictions/recent")["predictions"]
    path = f"/v1/predictions/{task['id']}/pictures"
    first = served.client.get(f"{path}/1", headers=bearer("ours"))
    assert (first.status_code, first.headers["content-type"]) == (200, "image/png")
    tag = {"if-none-match": first.headers["etag"]}
    assert served.client.get(f"{path}/1", headers={**bearer("ours"), **tag}).status_code == 304
    assert served.client.get(f"{path}/2", headers=bearer("ours")).status_code == 200
    for number in ("3", "99"):
        assert served.client.get(f"{path}/{number}", headers=bearer("ours")).status_code == 404
    assert served.client.get(f"{path}/0", headers=bearer("ours")).status_code == 422
    assert served.client.get(f"{path}/1", headers=bearer("theirs")).status_code == 404
    assert served.client.get(f"{path}/1").status_code == 401

    # Another program's task may name any key.
    current = await site.flow.deps.records.load(site.tid(photo))
    assert current is not None
    assert current.intent.input is not None
    put(site, "images/output/2026/01/21/page.png", b"<html><script>1</script>", "image/png")
    put(site, "users/7.json", png(1, 2, 3), "image/png")
    for number, wanted in enumerate(
        (
            current.intent.input.key,
            "users/7.json",
            "images/output/../../users/7.json",
            "images/output/2026/01/21/page.png",
            "images/output/none.png",
        )
    ):
        name = f"foreign{number}"
        document = {
            "prediction_id": name,
            "chat_id": 1,
            "status": "succeeded",
            "result": {"output_s3_key": wanted},
        }
        put(site, f"tasks/{name}.json", json.dumps(document).encode())
        answer = served.client.get(f"/v1/predictions/{name}/pictures/1", headers=bearer("ours"))
        assert answer.status_code == 404, wanted
    shown = {each["id"]: each for each in get(served, "/v1/predictions/recent")["predictions"]}
    assert set(shown) == {task["id"], *(f"foreign{number}" for number in range(5))}
    assert shown["foreign0"]["history"] == []


@clause("P-35", "P-33")
@pytest.mark.parametrize("limit", [1, 2, 100])
def test_p35_pages_of_any_size_show_every_task(site: Site, served: Serving, limit: int) -> None:
    """Folders and objects of other programs take places in a page of the bucket."""
    names = ["a1", "jobs", "z3"]
    for name in (*names, "not an id", "y" * 129):
        task = {"prediction_id": name, "chat_id": 1, "status": "queued"}
        put(site, f"tasks/{name}.json", json.dumps(task).encode())
    for other in ("tasks/intents/.listing", "tasks/open/b", "tasks/notes.txt", "tasks/zz/1.json"):
        put(site, other, b"")
    shown: list[str] = []
    after = ""
    for _ in range(len(names) + 1):
        page = get(served, f"/v1/predictions?limit={limit}&after={after}")
        shown += [each["id"] for each in page["predictions"]]
        if page["next"] is None:
            break
        after = page["next"]
    else:
        pytest.fail("the last page has no end")
    assert shown == names


@clause("P-35")
@pytest.mark.parametrize(
    "query",
    [
        *(
            "?limit=0",
            "?limit=101",
            "?limit=1e1",
            "?after=a%0A",
            "?after=a/b",
            f"?after={129 * 'a'}",
        ),
        *("/recent?limit=51", "/recent?status=all%0A", "/recent?status=done"),
    ],
)
def test_p35_a_query_of_another_form_is_refused(served: Serving, query: str) -> None:
    answer = served.client.get(f"/v1/predictions{query}", headers=bearer("ours"))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    name = query.partition("?")[2].partition("=")[0]
    assert answer.json()["errors"][0]["pointer"] == f"/{name}"


@clause("P-33")
@pytest.mark.parametrize("body", [b"not json", b"[" * 4000, b'{"until_ms": "soon"}', b"[]"])
def test_p33_an_unreadable_poller_lease_is_no_worker(
    site: Site, served: Serving, body: bytes
) -> None:
    put(site, "tasks/intents/.poller", body)
    assert get(served, "/v1/workers")["workers"] == []
