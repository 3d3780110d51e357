"""The API of images: lists, deletion, tenants, live status."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ResponseError

from jobwire.gateway.settings import GatewaySettings
from jobwire.local import LocalValkey
from jobwire.objects import BucketConfig
from jobwire.systems.images.contract import ImageErrorCode, ImageKeys, failed_now
from tests.support import Plain, clause, wait_until_sync
from tests.support.jobs_http import bearer, key
from tests.support.s3 import boto_client
from tests.systems.images.site import ImageSite, plain_photo, results, versions


@clause("I-11")
def test_i11_images_are_listed_newest_first_by_pages(site: ImageSite) -> None:
    made = [site.announce(filename=f"{number}.jpg")["image_id"] for number in range(5)]
    seen: list[str] = []
    cursor = None
    while True:
        params = {"limit": "2", **({"cursor": cursor} if cursor else {})}
        page = site.client.get("/v1/images", params=params).json()
        seen += [image["image_id"] for image in page["images"]]
        cursor = page["cursor"]
        if cursor is None or set(made) <= set(seen):
            break
    assert seen[: len(made)] == made[::-1]
    for bad in ("nonsense", "YWJj", "2026", "%"):
        answer = site.client.get("/v1/images", params={"cursor": bad})
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_cursor"), bad
    assert site.client.get("/v1/images", params={"limit": "0"}).status_code == 422


@clause("I-13")
def test_i13_a_result_that_a_killed_process_had_read_is_applied_after_30_s(
    site: ImageSite, plain: Plain
) -> None:
    image_id = site.announce()["image_id"]
    keys = ImageKeys()
    result: Any = failed_now(image_id, ImageErrorCode.INTERNAL, "interrupted").fields()
    with contextlib.suppress(ResponseError):  # another test has emptied the server
        plain.xgroup_create(keys.result, "api-workers", id="0", mkstream=True)
    # In one transaction, so that the consumers of the site do not get it first.
    with plain.pipeline(transaction=True) as both:
        both.xadd(keys.result, result)
        both.xreadgroup("api-workers", "dead", {keys.result: ">"}, count=100)
        entry, _ = both.execute()
    plain.call("XCLAIM", keys.result, "api-workers", "dead", 0, entry, "IDLE", 31_000, "JUSTID")
    assert site.ended(image_id)["status"] == "failed"


@clause("I-11")
def test_i11_a_deleted_image_is_removed_in_all_versions(site: ImageSite, plain: Plain) -> None:
    image_id = site.upload(plain_photo())
    site.ended(image_id)
    # A second version of the same object.
    boto_client(site.bucket).put_object(
        Bucket=site.bucket.bucket, Key=f"images/{image_id}.webp", Body=b"another version"
    )
    assert len(versions(site, image_id)) == 2
    assert site.client.delete(f"/v1/images/{image_id}").status_code == 204
    assert versions(site, image_id) == []
    assert not plain.exists(f"image:status:{image_id}")
    answer = site.client.get(f"/v1/images/{image_id}")
    assert (answer.status_code, answer.json()["code"]) == (404, "image_not_found")
    assert site.client.get(f"/v1/images/{image_id}/events").status_code == 404
    # A repeated deletion succeeds: the first may have failed half-way.
    assert site.client.delete(f"/v1/images/{image_id}").status_code == 204
    assert site.client.delete("/v1/images/unknown").status_code == 404


@clause("I-1", "I-12")
@pytest.mark.parametrize("progress", ["--5", "²", "much", "12345"])
def test_i01_a_progress_of_another_program_that_is_no_number_is_shown_as_0(
    site: ImageSite, plain: Plain, progress: str
) -> None:
    image_id = site.announce()["image_id"]
    plain.hset(f"image:status:{image_id}", "progress", progress)
    answer = site.client.get(f"/v1/images/{image_id}")
    assert (answer.status_code, answer.json()["progress"]) == (200, 0)


@clause("I-11", "I-24")
def test_i11_the_published_photo_is_read_through_the_gateway(site: ImageSite) -> None:
    """For clients that cannot reach the bucket; its headers describe the processing."""
    image_id = site.announce()["image_id"]
    path = f"/v1/images/{image_id}/picture"
    early = site.client.get(path)
    assert (early.status_code, early.json()["code"]) == (409, "image_not_ready")
    listed = site.client.get("/v1/images").json()
    assert (listed["images"][0]["stage"], listed["images"][0]["progress"]) == ("queued", 0)
    assert listed["max_size"] == 10 << 20

    photo = plain_photo()
    image_id = site.upload(photo)
    image = site.ended(image_id)
    path = f"/v1/images/{image_id}/picture"
    answer = site.client.get(path)
    assert answer.headers["content-type"] == "image/webp"
    assert hashlib.sha256(answer.content).hexdigest() == image["sha256"]
    assert answer.headers["jobwire-original-size"] == str(len(photo))
    assert answer.headers["jobwire-hidden-areas"] == "none"
    assert answer.headers["cache-control"] == "private, no-cache"
    again = site.client.get(path, headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    # An object of another program is served as a picture, whatever it contains.
    boto_client(site.bucket).put_object(
        Bucket=site.bucket.bucket,
        Key=f"images/{image_id}.webp",
        Body=b"<script>alert(1)</script>",
        ContentType="text/html",
    )
    changed = site.client.get(path)
    assert changed.headers["content-type"] == "image/webp"
    assert changed.headers["x-content-type-options"] == "nosniff"
    assert site.client.delete(f"/v1/images/{image_id}").status_code == 204
    assert site.client.get(path).status_code == 404


@clause("I-6", "I-11")
def test_i11_an_image_deleted_before_its_end_is_canceled(site: ImageSite, plain: Plain) -> None:
    image = site.announce()
    image_id = image["image_id"]
    assert site.client.delete(f"/v1/images/{image_id}").status_code == 204
    assert site.put(image, plain_photo()).status_code == 202

    def result() -> list[dict[str, str]]:
        return results(plain, image_id)

    wait_until_sync(result, "the result")
    assert [fields["error_code"] for fields in result()] == ["CANCELED"]
    wait_until_sync(lambda: versions(site, image_id) == [], "what was stored to be deleted")
    assert not plain.exists(f"image:status:{image_id}")


@clause("I-4", "I-12")
def test_i12_a_stream_resumes_with_the_present_state_and_ends_with_204(
    site: ImageSite, plain: Plain
) -> None:
    image_id = site.upload(plain_photo())
    site.ended(image_id)
    with site.events(image_id, last_id="2020-01-01T00:00:00Z") as stream:
        (last,) = stream
    assert last.name == "ready"
    answer = site.client.get(f"/v1/images/{image_id}/events", headers={"last-event-id": last.id})
    assert answer.status_code == 204
    # Without its hash, the record decides.
    plain.delete(f"image:status:{image_id}")
    with site.events(image_id) as stream:
        assert [event.name for event in stream] == ["ready"]


@clause("I-4", "I-12")
def test_i12_a_stream_opens_with_a_comment_and_the_first_state(site: ImageSite) -> None:
    image_id = site.announce()["image_id"]
    with site.client.stream("GET", f"/v1/images/{image_id}/events") as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith(":")
        assert next(lines) == ""
        assert [next(lines).partition(":")[0] for _ in range(3)] == ["id", "event", "data"]


@clause("I-12", "I-34")
def test_i34_watchers_share_one_connection(site: ImageSite, plain: Plain) -> None:
    def clients() -> int:
        return len(plain.client_list())

    image_ids = [site.announce()["image_id"] for _ in range(20)]
    before = clients()
    opened = [site.client.stream("GET", f"/v1/images/{each}/events") for each in image_ids]
    for stream in opened:
        lines = stream.__enter__().iter_lines()
        while not next(lines).startswith("data:"):
            pass
    assert clients() == before
    for stream in opened:
        stream.__exit__(None, None, None)


@pytest.fixture
def tenants_site(valkey: LocalValkey, images_bucket: BucketConfig, tmp_path: Path) -> ImageSite:
    keys = (
        key("writer", "submit", "read", tenant="acme"),
        key("other", "submit", "read", tenant="globex"),
        key("reader", "read", tenant="acme"),
        key("boss", "admin", tenant="*"),
    )
    return ImageSite(
        valkey.url,
        images_bucket,
        tmp_path,
        gateway=GatewaySettings(keys=keys),
        keys=keys,
        key_prefix="{shop}:",
    )


@clause("I-35", "I-32")
def test_i35_a_tenant_sees_its_own_images_only(tenants_site: ImageSite, plain: Plain) -> None:
    with tenants_site as site:
        client = site.client
        new = {"content_type": "image/jpeg"}
        assert client.post("/v1/images", json=new).status_code == 401
        assert client.post("/v1/images", json=new, headers=bearer("reader")).status_code == 403
        image = client.post("/v1/images", json=new, headers=bearer("writer")).json()
        path = f"/v1/images/{image['image_id']}"
        # The upload needs its token, and no API key.
        assert site.put(image, plain_photo()).status_code == 202
        assert plain.exists(f"{{shop}}:image:status:{image['image_id']}")

        def ready() -> bool:
            answer = client.get(path, headers=bearer("reader"))
            return answer.json()["status"] == "ready"

        wait_until_sync(ready, "the image")
        assert client.get(path, headers=bearer("boss")).status_code == 200
        for request in ("GET", "DELETE"):
            assert client.request(request, path, headers=bearer("other")).status_code == 404
        assert client.get(f"{path}/events", headers=bearer("other")).status_code == 404
        assert client.get(f"{path}/picture", headers=bearer("other")).status_code == 404
        assert client.get(f"{path}/picture").status_code == 401
        assert client.get(f"{path}/picture", headers=bearer("reader")).status_code == 200
        listed = client.get("/v1/images", headers=bearer("other")).json()
        assert listed["images"] == []
        listed = client.get("/v1/images", headers=bearer("boss")).json()
        assert [each["image_id"] for each in listed["images"]] == [image["image_id"]]
        # The address of the upload accepts no API key instead of the token.
        headers = {**bearer("boss"), "content-type": "image/jpeg"}
        answer = client.put(image["upload_url"], content=plain_photo(), headers=headers)
        assert answer.status_code == 401
    assert plain.xlen("{shop}:image:result") == 1
    plain.delete("{shop}:image:result")
