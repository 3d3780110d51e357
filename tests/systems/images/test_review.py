"""Photos in which nothing was found, and doubtful ones, wait for a reviewer (I-38)."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from jobwire.gateway.settings import GatewaySettings
from jobwire.handlers.photo import PoolFull
from jobwire.handlers.photo.admission import PhotoAdmission
from jobwire.job import retry
from jobwire.local import LocalValkey
from jobwire.objects import Bucket, BucketConfig
from jobwire.systems.images import processing
from jobwire.systems.images.contract import ImageKeys, ReviewDecision, ReviewField
from jobwire.systems.images.http import api as http_api
from jobwire.systems.images.processing import Processing
from jobwire.systems.images.spool import Spool
from jobwire.systems.images.status import ImageStatus
from jobwire.valkey import Connection
from tests.handlers.photo.images import jpeg, read
from tests.support import Fresh, Plain, Proxy, clause, wait_until, wait_until_sync
from tests.support.jobs_http import bearer, key
from tests.support.s3_proxy import S3Proxy, dropped
from tests.systems.images.gateway_process import bright_photo, dark_photo
from tests.systems.images.site import ImageSite, results
from tests.systems.images.test_erasure import entries_of as _entries_of
from tests.systems.images.test_erasure import in_bucket
from tests.systems.images.test_faults import FakePhoto, Photos, accept, names

KEYS = ImageKeys("{review}:")
pytestmark = pytest.mark.keeps(f"{KEYS.result}*")
DETECTOR = "tests.systems.images.plugins:TwoOfBright"
DOUBTS = "tests.systems.images.plugins:Doubts"
DRAWN = '{"areas":[[0.1,0.1,0.2,0.2]]}'
BOSS, APP = bearer("boss"), bearer("app")


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processing, "_REVIEW_S", 0.02)


@contextmanager
def reviewed_site(
    valkey: LocalValkey, bucket: BucketConfig, folder: Path, *, detector: str, **images: Any
) -> Generator[ImageSite]:
    """Reviewers have the scope `admin`; the app has not."""
    keys = (key("boss", "admin", tenant="*"), key("app", "submit", "read", tenant="acme"))
    with ImageSite(
        valkey.url,
        bucket,
        folder,
        gateway=GatewaySettings(keys=keys),
        keys=keys,
        detect=(detector,),
        key_prefix=KEYS.prefix,
        **images,
    ) as running:
        running.client.headers.update(BOSS)
        yield running


@pytest.fixture
def site(valkey: LocalValkey, images_bucket: BucketConfig, tmp_path: Path) -> Iterator[ImageSite]:
    with reviewed_site(
        valkey, images_bucket, tmp_path, detector=DETECTOR, review="none_found"
    ) as running:
        yield running


def upload(site: ImageSite, body: bytes, **announced: Any) -> str:
    new = {"content_type": "image/jpeg", **announced}
    image = site.client.post("/v1/images", json=new, headers=APP).json()
    assert site.put(image, body).status_code == 202
    return image["image_id"]


def held(site: ImageSite, body: bytes | None = None) -> str:
    """A photo that is held; its stage is written on its own and may come a moment later."""
    image_id = upload(site, body or dark_photo())

    def is_held() -> bool:
        image = site.get(image_id)
        return image["held"] and image["stage"] == "processing"

    wait_until_sync(is_held, "the photo to be held")
    return image_id


@clause("I-38", "I-1", "I-13")
def test_i38_a_photo_without_findings_is_published_when_it_is_approved(
    site: ImageSite, plain: Plain
) -> None:
    image_id = held(site)
    image = site.get(image_id)
    assert (image["status"], image["stage"], image["url"]) == ("processing", "processing", None)
    assert not in_bucket(site.bucket, f"images/{image_id}.webp")
    assert results(plain, image_id, KEYS.prefix) == []
    # Only a reviewer sees and decides.
    for method, path in (("GET", "held"), ("POST", "approve"), ("POST", "reject")):
        answer = site.client.request(method, f"/v1/images/{image_id}/{path}", headers=APP)
        assert answer.status_code == 403, path
    answer = site.client.get(f"/v1/images/{image_id}/held")
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    assert read(answer.content).shape == (120, 160, 3)
    assert site.client.get(f"/v1/images/{image_id}/picture").status_code == 409
    assert site.client.post(f"/v1/images/{image_id}/approve").status_code == 204
    ended = site.ended(image_id)
    assert (ended["status"], ended["hidden_areas"], ended["held"]) == ("ready", 0, False)
    again = site.client.post(f"/v1/images/{image_id}/approve")
    assert (again.status_code, again.json()["code"]) == (409, "image_not_held")
    wait_until_sync(lambda: [f.name for f in site.spool.iterdir()] == ["spool.lock"], "the spool")
    assert not plain.exists(KEYS.review(image_id))


async def not_stored(*_: object) -> None:
    """The upload gateway does not answer."""


@clause("I-38", "O-15")
def test_o15_a_wait_for_a_held_photo_ends_with_its_client(
    site: ImageSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    image_id = held(site)
    monkeypatch.setattr(http_api, "_HELD_PICTURE_S", 600.0)
    monkeypatch.setattr(ImageStatus, "held_picture", not_stored)
    head = f"GET /v1/images/{image_id}/held HTTP/1.1\r\nHost: localhost\r\n"
    head += f"Authorization: {BOSS['authorization']}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", urlsplit(site.url).port), timeout=30) as peer:
        peer.sendall(head.encode())
        wait_until_sync(lambda: any(each.awaits_end for each in site.connections), "the wait")
    wait_until_sync(lambda: not any(each.task for each in site.connections), "its end")
    assert site.client.post(f"/v1/images/{image_id}/reject").status_code == 204


@clause("I-38")
def test_i38_a_photo_with_findings_is_not_held(site: ImageSite) -> None:
    image = site.ended(upload(site, bright_photo()))
    assert (image["status"], image["hidden_areas"]) == ("ready", 2)
    unheld = site.client.put(f"/v1/images/{image['image_id']}/areas", json={"areas": []})
    assert unheld.status_code == 409
    assert site.client.post("/v1/images/unknown/approve").status_code == 404


@clause("I-38", "I-6")
def test_i38_a_rejected_photo_is_canceled_and_gone(site: ImageSite, plain: Plain) -> None:
    image_id = held(site)
    assert site.client.post(f"/v1/images/{image_id}/reject").status_code == 204
    image = site.ended(image_id)
    assert (image["status"], image["error"]["code"]) == ("failed", "CANCELED")
    assert "reviewer" in image["error"]["message"]
    wait_until_sync(lambda: [f.name for f in site.spool.iterdir()] == ["spool.lock"], "the spool")
    assert not in_bucket(site.bucket, f"images/{image_id}.webp")
    assert len(results(plain, image_id, KEYS.prefix)) == 1


@clause("I-38")
def test_i38_areas_drawn_by_a_person_are_hidden(site: ImageSite) -> None:
    image_id = held(site)
    area = {"left": 0.0, "top": 0.0, "width": 0.25, "height": 0.25}
    path = f"/v1/images/{image_id}"
    for bad in ({**area, "left": 1.5}, {**area, "width": 0}, {**area, "label": "x"}, {"left": 0}):
        assert site.client.put(f"{path}/areas", json={"areas": [bad]}).status_code == 422, bad
    assert site.client.put(f"{path}/areas", json={"areas": [area] * 17}).status_code == 422
    assert site.client.put(f"{path}/areas", json={"areas": [area]}, headers=APP).status_code == 403
    assert site.client.put(f"{path}/areas", json={"areas": [area]}).status_code == 204
    assert site.client.post(f"{path}/approve").status_code == 204, "at once: the areas come first"
    image = site.ended(image_id)
    assert (image["status"], image["hidden_areas"]) == ("ready", 1)
    assert site.client.get(f"{path}/picture").headers["jobwire-hidden-areas"] == "drawn=1"


@clause("I-38")
def test_i38_areas_of_an_announcement_are_hidden(site: ImageSite) -> None:
    area = {"left": 0.5, "top": 0.5, "width": 0.5, "height": 0.5}
    image = site.ended(upload(site, dark_photo(), areas=[area]))
    assert (image["status"], image["hidden_areas"]) == ("ready", 1)


@clause("I-38", "I-11", "I-42")
def test_i38_a_held_photo_can_be_deleted(
    site: ImageSite, plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processing, "_SWEEP_S", 0.05)
    image_id = held(site)
    assert site.client.delete(f"/v1/images/{image_id}").status_code == 204
    wait_until_sync(lambda: [f.name for f in site.spool.iterdir()] == ["spool.lock"], "the spool")
    assert [each["error_code"] for each in results(plain, image_id, KEYS.prefix)] in (
        ["CANCELED"],
        [],  # erased already
    )


# ── doubt ────────────────────────────────────────────────────────────────────────────────────────


def spots(picture: bytes) -> list[str]:
    """Which of the three areas of `Doubts` are hidden in the bright photo."""
    pixels = read(picture)
    places = {"sure": (7, 7), "doubtful": (65, 65), "refuted": (95, 125)}
    return [name for name, at in places.items() if abs(int(pixels[at].mean()) - 128) < 8]


def white_photo(grey: int = 250) -> bytes:
    return jpeg(np.full((120, 160, 3), grey, np.uint8))


@clause("I-37", "I-38")
@pytest.mark.parametrize("review", ["none_found", "doubtful"])
def test_i38_without_their_review_doubtful_areas_are_hidden_and_refuted_ones_are_not(
    valkey: LocalValkey, images_bucket: BucketConfig, tmp_path: Path, review: str
) -> None:
    """With it the photo is held, and all that was found is hidden until a person decides."""
    with reviewed_site(
        valkey, images_bucket, tmp_path, detector=DOUBTS, review=review, fill="grey"
    ) as site:
        image_id = upload(site, white_photo())
        path = f"/v1/images/{image_id}"
        if review == "doubtful":
            wait_until_sync(lambda: site.get(image_id)["held"], "the photo to be held")
            assert site.get(image_id)["held_for"] == "doubtful"
            held_picture = site.client.get(f"{path}/held").content
            assert spots(held_picture) == ["sure", "doubtful", "refuted"]
            area = {"left": 0.5, "top": 0.0, "width": 0.1, "height": 0.1}
            wish = {"areas": [area], "show_doubtful": True}
            assert site.client.put(f"{path}/areas", json=wish).status_code == 204

            held_picture = site.client.get(f"{path}/held").content
            assert spots(held_picture) == ["sure"], "at once: the new picture is waited for"
            assert site.client.post(f"{path}/approve").status_code == 204
        image = site.ended(image_id)
        assert (image["status"], image["hidden_areas"], image["held_for"]) == ("ready", 2, None)
        published = site.client.get(f"{path}/picture").content
        assert spots(published) == ["sure"] if review == "doubtful" else ["sure", "doubtful"]


@clause("I-38")
def test_i38_a_photo_that_would_be_hidden_mostly_is_held(
    valkey: LocalValkey, images_bucket: BucketConfig, tmp_path: Path
) -> None:
    with reviewed_site(valkey, images_bucket, tmp_path, detector=DOUBTS, review="doubtful") as site:
        for body, reason in ((white_photo(120), "mostly_hidden"), (dark_photo(), "none_found")):
            image_id = held(site, body)
            assert site.get(image_id)["held_for"] == reason
            assert site.client.post(f"/v1/images/{image_id}/approve").status_code == 204
            image = site.ended(image_id)
            assert image["mostly_hidden"] is (reason == "mostly_hidden")


@clause("I-38")
def test_i38_a_held_picture_is_not_shown_while_it_is_made_with_other_areas(
    site: ImageSite, plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, the former picture was answered for seconds."""
    monkeypatch.setattr(http_api, "_HELD_PICTURE_S", 0.2)
    image_id = site.announce()["image_id"]
    review = KEYS.review(image_id)
    plain.hset(review, mapping={"held": "none_found", "made": "", "areas": DRAWN})
    plain.set(KEYS.held_picture(image_id), "former")
    answer = site.client.get(f"/v1/images/{image_id}/held")
    assert (answer.status_code, answer.json()["code"]) == (409, "held_picture_changes")
    assert int(answer.headers["retry-after"]) >= 1
    assert not plain.hexists(review, "wanted")
    plain.delete(review, KEYS.held_picture(image_id))


@clause("I-38")
async def test_i38_a_former_held_picture_goes_when_the_new_one_is_made(
    connection: Connection, plain: Plain, fresh: Fresh
) -> None:
    status, image_id = ImageStatus(connection, KEYS), fresh("changed")
    assert await status.hold(image_id, "none_found", "") == ("", "", False)
    await status.show_held(image_id, "former")
    assert await status.review(image_id, ReviewField.AREAS, DRAWN) == "noted"
    assert await status.review(image_id, ReviewField.WANTED, "1") == "changing"
    assert await status.hold(image_id, "none_found", "") == ("", DRAWN, False)
    assert await status.hold(image_id, "none_found", DRAWN) == ("", DRAWN, False)
    assert await status.held_picture(image_id) is None
    assert await status.review(image_id, ReviewField.WANTED, "1") == "noted"
    assert await status.hold(image_id, "none_found", DRAWN) == ("", DRAWN, True)
    await status.end_review(image_id)


# ── crash, outage, expiry ────────────────────────────────────────────────────────────────────────


def entries_of(plain: Plain, image_id: str) -> list[str]:
    return _entries_of(plain, image_id, KEYS)


class Holder:
    """A gateway that holds photos, to be stopped and started again on the same spool."""

    def __init__(self, connection: Connection, folder: Path, bucket: BucketConfig) -> None:
        self.status = ImageStatus(connection, KEYS)
        self._connection, self._folder, self._bucket = connection, folder, bucket
        self.photos: Photos = Photos()
        self.spool = Spool(folder)

    def restart(self) -> None:
        self.spool.close()
        self.spool = Spool(self._folder)
        self.spool.recover()

    def running(self, review_life_s: float = 600.0) -> Any:
        return Processing(
            self._connection,
            self.status,
            self.spool,
            Bucket(self._bucket),
            self.photos,
            review_life_s=review_life_s,
        ).running()


@clause("I-38", "I-30", "I-31")
async def test_i38_a_held_photo_outlives_restarts_and_a_server_that_lost_its_data(
    connection: Connection, plain: Plain, tmp_path: Path, seaweedfs: BucketConfig, fresh: Fresh
) -> None:
    image_id = fresh("held")
    holder = Holder(connection, tmp_path, seaweedfs)
    entry = accept(holder.spool, image_id)

    async def wait_held() -> None:
        await wait_until(lambda: plain.hget(KEYS.review(image_id), "held"), "the hold")

    for _ in range(6):  # more often than an image that is being processed may be interrupted
        async with holder.running():
            await wait_held()
            plain.delete(KEYS.review(image_id), KEYS.status(image_id))
            await wait_held()
        assert names(tmp_path) != ["spool.lock"]
        assert entries_of(plain, image_id) == []
        holder.restart()
    # Decided while no gateway runs, or by one that crashed before it acted.
    review = holder.status.review
    assert await review(image_id, ReviewField.AREAS, DRAWN) == "noted"
    approve, reject = ReviewDecision.APPROVE, ReviewDecision.REJECT
    assert await review(image_id, ReviewField.DECISION, approve) == "noted"
    assert await review(image_id, ReviewField.DECISION, reject) == "not_held"
    async with holder.running():
        await wait_until(lambda: holder.spool.count == 0, "the end")
    holder.spool.close()
    assert entries_of(plain, image_id) == ["processed"]
    assert names(tmp_path) == ["spool.lock"]
    assert holder.photos.areas == [[0.1, 0.1, 0.2, 0.2]]
    await Bucket(seaweedfs).delete(entry.storage_key)


@clause("I-38", "I-30")
async def test_i38_an_approval_is_not_asked_for_again_after_a_crash(
    connection: Connection, plain: Plain, tmp_path: Path, seaweedfs: BucketConfig, fresh: Fresh
) -> None:
    """The bucket is unreachable after the approval, and the server has forgotten it."""
    image_id = fresh("approved")
    with S3Proxy(seaweedfs) as store:
        store.every(lambda _: dropped)
        holder = Holder(connection, tmp_path, store.config)
        entry = accept(holder.spool, image_id)
        stage = KEYS.status(image_id)
        async with holder.running():
            await wait_until(lambda: plain.hget(KEYS.review(image_id), "held"), "the hold")
            await wait_until(lambda: plain.hget(stage, "stage") == "processing", "its stage")
            approve = ReviewDecision.APPROVE
            noted = await holder.status.review(image_id, ReviewField.DECISION, approve)
            assert noted == "noted"
            await wait_until(lambda: plain.hget(stage, "stage") == "uploading", "the approval")
            # The drain time is spent on waiting for the bucket.
            store.every(lambda _: None)
            plain.delete(KEYS.review(image_id))
            await wait_until(lambda: holder.spool.count == 0, "the end")
    holder.spool.close()
    assert entries_of(plain, image_id) == ["processed"]
    await Bucket(seaweedfs).delete(entry.storage_key)


@clause("I-38", "I-42")
@pytest.mark.parametrize("server", ["answers", "is_away"])
async def test_i38_a_photo_that_nobody_reviews_expires(
    valkey: LocalValkey,
    plain: Plain,
    tmp_path: Path,
    seaweedfs: BucketConfig,
    fresh: Fresh,
    server: str,
) -> None:
    image_id = fresh("unseen")
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(valkey.port))
        async with Connection.open(proxy.url(valkey.url), name="tests-review") as connection:
            holder = Holder(connection, tmp_path, seaweedfs)
            accept(holder.spool, image_id)
            async with holder.running(review_life_s=1.0):
                await wait_until(lambda: plain.hget(KEYS.review(image_id), "held"), "the hold")
                if server == "is_away":
                    proxy.refuse()
                    # The original is gone although the result cannot be published.
                    await wait_until(
                        lambda: {*names(tmp_path)} == {f"{image_id}.json", "spool.lock"}, "the end"
                    )
                    proxy.accept()
                await wait_until(lambda: holder.spool.count == 0, "the result")
            holder.spool.close()
    assert entries_of(plain, image_id) == ["EXPIRED"]
    assert names(tmp_path) == ["spool.lock"]


class FullPool(Photos):
    """A pool of one worker, for whom one photo may wait; it works while `open` is set."""

    def __init__(self) -> None:
        super().__init__()
        self._admission = PhotoAdmission(workers=1, budget=1, max_waiting=1)
        self.open = asyncio.Event()
        self.refused: Counter[str] = Counter()
        self.at_a_time = self.most = 0

    async def process(self, source: Path, target: Path, **more: Any) -> FakePhoto:
        self.at_a_time += 1
        self.most = max(self.most, self.at_a_time)
        try:
            async with self._admission.admitted(1):
                await self.open.wait()
                return await super().process(source, target, **more)
        except PoolFull:
            self.refused[source.name] += 1
            raise
        finally:
            self.at_a_time -= 1


@clause("I-38", "I-21", "I-30")
async def test_i38_more_held_photos_than_the_pool_takes_outlive_a_restart(
    connection: Connection,
    plain: Plain,
    tmp_path: Path,
    seaweedfs: BucketConfig,
    fresh: Fresh,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: a full pool counted as a failed try; photos ended as INTERNAL."""
    monkeypatch.setattr(processing, "_BACKOFF", retry.Backoff("exponential", 0.01, 0.02, 0.5))
    image_ids = [fresh("held") for _ in range(12)]
    holder = Holder(connection, tmp_path, seaweedfs)
    for image_id in image_ids:
        accept(holder.spool, image_id)

    def all_held() -> bool:
        return all(plain.hget(KEYS.review(image_id), "held") for image_id in image_ids)

    async with holder.running():
        await wait_until(all_held, "the hold")
    plain.delete(*map(KEYS.review, image_ids))
    holder.restart()
    holder.photos = photos = FullPool()
    async with holder.running():
        # One of them is refused more often than a fault may be repeated.
        await wait_until(
            lambda: max(photos.refused.values(), default=0) > 8 or holder.spool.count < 12,
            "the pool to be full",
        )
        assert holder.spool.count == 12
        photos.open.set()
        await wait_until(all_held, "the hold")
    holder.spool.close()
    assert len([name for name in names(tmp_path) if name.endswith(".part")]) == 12
    assert [entries_of(plain, image_id) for image_id in image_ids] == [[]] * 12
    assert photos.most <= processing.HELD_AT_A_TIME, "new uploads find a place"
