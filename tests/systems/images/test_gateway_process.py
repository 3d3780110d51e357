"""The upload gateway as a process: load, kill -9 at each step, SIGTERM.

After each restart every accepted image has exactly one result, and no original with its hidden half
remains in the spool or in any version in the bucket.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from redis import Redis

from jobwire.local import LocalValkey, free_port
from jobwire.objects import BucketConfig
from jobwire.systems.images.contract import ImageKeys
from tests.support import Plain, clause, wait_until_sync
from tests.systems.images.gateway_process import (
    PREFIX,
    GatewayProcess,
    bright_photo,
    dark_photo,
    finishes,
)
from tests.systems.images.site import Json, portrait, raw_put, results, versions

KEYS = ImageKeys(PREFIX)
pytestmark = pytest.mark.keeps(f"{KEYS.result}*")
UPLOADS = int(os.environ.get("IMAGES_UPLOADS", "60"))
KILLS = int(os.environ.get("IMAGES_KILLS", "0"))
BODY = int(os.environ.get("IMAGES_BODY", str(64 << 20)))
MAX_IN_WORK = 8
PIXELS_MB = 4
"""Of decoded photos: three portraits at a time."""
GROWTH_BYTES = (PIXELS_MB + 28) << 20
"""Decoded pixels, the bodies of the images in progress, and buffers of connections; far less than
all bodies or all pixels."""


@pytest.fixture(scope="module")
def running(
    valkey: LocalValkey,
    images_bucket: BucketConfig,
    tmp_path_factory: pytest.TempPathFactory,
    observer: Redis,
) -> Iterator[GatewayProcess]:
    with GatewayProcess(
        valkey,
        images_bucket,
        tmp_path_factory.mktemp("process"),
        JOBWIRE_IMAGES_MAX_IN_WORK=str(MAX_IN_WORK),
        JOBWIRE_IMAGES_PIXEL_BUDGET_MB=str(PIXELS_MB),
        JOBWIRE_IMAGES_MAX_MEGAPIXELS="0.5",
        JOBWIRE_IMAGES_SPOOL_MB="10",
    ) as started:
        yield started
    observer.flushall()  # the API's consumer creates its group again after each test


@pytest.fixture
def gateway(running: GatewayProcess, valkey: LocalValkey) -> GatewayProcess:
    """The process, in a test whose server is emptied afterwards."""
    assert valkey.alive
    if running.program.exit_code is not None:  # a test that failed has left it dead
        running.start()
    return running


def stage(plain: Plain, image_id: str) -> str:
    return str(plain.hget(KEYS.status(image_id), "stage"))


@clause("I-30")
def test_i30_a_second_gateway_on_the_same_spool_says_so_in_one_line(
    gateway: GatewayProcess,
) -> None:
    with gateway.second(free_port()) as second:
        assert second.wait(timeout_s=60) == 2
        (line,) = [each for each in second.output.splitlines() if each.startswith("jobwire:")]
    assert "another upload gateway uses the spool" in line
    assert "give each its own images.spool_dir" in line


@clause("I-21")
def test_i21_many_uploads_at_once_stay_within_the_budget(
    gateway: GatewayProcess, plain: Plain
) -> None:
    photo = portrait()
    for image_id in [gateway.site.upload(photo) for _ in range(4)]:
        gateway.site.ended(image_id)  # libraries and buffers are loaded
    before = gateway.memory()
    images = [gateway.site.announce() for _ in range(UPLOADS)]

    async def put(client: httpx.AsyncClient, image: Json) -> httpx.Response:
        headers = {"content-type": "image/jpeg", "authorization": f"Bearer {image['token']}"}
        return await client.put(image["upload_url"], content=photo, headers=headers)

    async def put_all() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=UPLOADS)
        async with httpx.AsyncClient(limits=limits, timeout=60, trust_env=False) as client:
            return await asyncio.gather(*(put(client, image) for image in images))

    answers = asyncio.run(put_all())
    counts = Counter(answer.status_code for answer in answers)
    assert set(counts) == {202, 503}, counts
    assert counts[202] >= MAX_IN_WORK
    for image, answer in zip(images, answers, strict=True):
        if answer.status_code == 202:
            assert gateway.site.ended(image["image_id"])["status"] == "ready"
            assert len(results(plain, image["image_id"], PREFIX)) == 1
        else:
            assert answer.json()["code"] == "upload_capacity"
            assert int(answer.headers["retry-after"]) >= 1
            assert not plain.exists(KEYS.upload(image["image_id"]))
    assert gateway.memory() - before < GROWTH_BYTES
    gateway.wait_until_empty()


@clause("I-21")
def test_i21_an_upload_that_does_not_fit_into_the_spool_gets_503(
    gateway: GatewayProcess, plain: Plain
) -> None:
    large, other, photo = gateway.site.announce(), gateway.site.announce(), bright_photo()
    # The spool has 10 MB, and this body may need all of it.
    with raw_put(large, 10 << 20, photo):
        wait_until_sync(lambda: plain.exists(KEYS.upload(large["image_id"])), "the claim")
        answer = gateway.site.put(other, photo)
        assert (answer.status_code, answer.json()["code"]) == (503, "upload_capacity")
        assert not plain.exists(KEYS.upload(other["image_id"]))
    wait_until_sync(lambda: not plain.exists(KEYS.upload(large["image_id"])), "the release")
    wait_until_sync(lambda: gateway.site.put(other, photo).status_code == 202, "the upload")
    gateway.check_published(plain, other["image_id"])
    gateway.wait_until_empty()


@clause("I-2", "I-20", "I-21")
def test_i20_a_huge_body_is_refused_while_it_is_sent(
    gateway: GatewayProcess, plain: Plain, tmp_path: Path
) -> None:
    """IMAGES_BODY is its size."""
    image, file = gateway.site.announce(), tmp_path / "huge.jpg"
    with file.open("wb") as made:
        made.write(b"\xff\xd8\xff\xe0")
        made.truncate(BODY)  # sparse
    before = gateway.memory()
    # With its length; without one; without `Expect: 100-continue`.
    for headers, status in (
        ([], "413"),
        (["Expect:"], "413"),
        (["Expect:", "Transfer-Encoding: chunked"], "411"),
    ):
        given = [f"Authorization: Bearer {image['token']}", "Content-Type: image/jpeg", *headers]
        done = subprocess.run(
            [
                *("curl", "-sS", "--noproxy", "*", "-m", "300", "-o", "/dev/null"),
                *("-w", "%{http_code}", "-T", str(file), image["upload_url"]),
                *(part for each in given for part in ("-H", each)),
            ],
            capture_output=True,
            text=True,
            timeout=310,
            check=False,
        )
        assert done.stdout == status, done.stderr
        assert not plain.exists(KEYS.upload(image["image_id"]))
    assert gateway.spooled() == set()
    assert gateway.memory() - before < GROWTH_BYTES
    assert gateway.site.put(image, bright_photo()).status_code == 202
    gateway.check_published(plain, image["image_id"])
    gateway.wait_until_empty()


@clause("I-2", "I-7", "I-30")
def test_i30_a_gateway_killed_at_each_step_leaves_one_result_and_no_original(
    gateway: GatewayProcess, plain: Plain
) -> None:
    site, photo = gateway.site, bright_photo()
    half, claiming, unstored, unanswered, publishing, waiting = (site.announce() for _ in range(6))
    dark = [site.announce() for _ in range(2)]
    gateway.hold_dark()
    with contextlib.ExitStack() as opened:
        # Half of a body has arrived.
        opened.enter_context(raw_put(half, len(photo), photo[:500]))
        wait_until_sync(lambda: plain.exists(KEYS.upload(half["image_id"])), "the claim")
        # Photos that are being written to the bucket, and one that is stored without an answer.
        writes = [
            gateway.hold_write(unstored["image_id"]),
            gateway.hold_write(unanswered["image_id"], stored=True),
            gateway.hold_write(publishing["image_id"]),
        ]
        for image in (unstored, unanswered, publishing):
            assert site.put(image, photo).status_code == 202
        wait_until_sync(lambda: all(each.arrived.is_set() for each in writes), "the writes")
        # Both photo workers are in the step `detect`, and an accepted image waits for one of them.
        for image in dark:
            assert site.put(image, dark_photo()).status_code == 202
        wait_until_sync(
            lambda: {stage(plain, image["image_id"]) for image in dark} == {"processing"},
            "the photos in detection",
        )
        assert site.put(waiting, photo).status_code == 202
        assert stage(plain, waiting["image_id"]) == "queued"
        # A result is in flight, and a claim behind it: both arrive after their sender has died.
        with gateway.proxy.hold(finishes(publishing["image_id"])) as hold:
            writes[2].let_pass()
            hold.wait_reached()
            opened.enter_context(raw_put(claiming, len(photo), photo))
            gateway.proxy.wait_behind(KEYS.upload(claiming["image_id"]))
            gateway.kill()
            assert results(plain, publishing["image_id"], PREFIX) == []
        wait_until_sync(lambda: results(plain, publishing["image_id"], PREFIX), "the late result")
        wait_until_sync(lambda: plain.exists(KEYS.upload(claiming["image_id"])), "the late claim")
    gateway.start()
    for image in (unstored, unanswered, publishing, waiting, *dark):
        gateway.check_published(plain, image["image_id"])
    # Bodies that were not accepted: no file remains, and they can be sent again.
    gateway.wait_until_empty()
    for image in (half, claiming):
        assert not plain.exists(KEYS.upload(image["image_id"]))
        assert results(plain, image["image_id"], PREFIX) == []
        assert site.put(image, photo).status_code == 202
        gateway.check_published(plain, image["image_id"])
    gateway.wait_until_empty()


@clause("I-6", "I-11")
def test_i11_an_image_deleted_at_its_end_is_not_published(
    gateway: GatewayProcess, plain: Plain
) -> None:
    """Between the write to the bucket and the result."""
    site = gateway.site
    image = site.announce()
    image_id = image["image_id"]
    with gateway.proxy.hold(finishes(image_id)) as hold:
        assert site.put(image, bright_photo()).status_code == 202
        hold.wait_reached()
        assert site.client.delete(f"/v1/images/{image_id}").status_code == 204
    wait_until_sync(lambda: results(plain, image_id, PREFIX), "the result")
    assert [fields["error_code"] for fields in results(plain, image_id, PREFIX)] == ["CANCELED"]
    wait_until_sync(lambda: versions(site, image_id) == [], "what was stored to be deleted")
    gateway.wait_until_empty()


@clause("I-31")
def test_i31_a_stopping_gateway_finishes_images_or_leaves_them_in_the_spool(
    gateway: GatewayProcess, plain: Plain
) -> None:
    site, photo = gateway.site, bright_photo()
    in_work, arriving = site.announce(), site.announce()
    gateway.hold_dark()
    assert site.put(in_work, dark_photo()).status_code == 202
    wait_until_sync(lambda: stage(plain, in_work["image_id"]) == "processing", "the detection")
    with raw_put(arriving, len(photo), photo[:500]) as opened:
        wait_until_sync(lambda: plain.exists(KEYS.upload(arriving["image_id"])), "the claim")
        gateway.program.terminate()

        wait_until_sync(lambda: not gateway.listens(), "new uploads to be refused")
        # A body that was being received is accepted, and waits for the next start.
        opened.sendall(photo[500:])
        assert opened.recv(4096).startswith(b"HTTP/1.1 202")
    gateway.release_dark()
    assert gateway.program.wait(timeout_s=60) == 0
    gateway.check_published(plain, in_work["image_id"])
    assert {name.partition(".")[0] for name in gateway.spooled()} == {arriving["image_id"]}
    assert results(plain, arriving["image_id"], PREFIX) == []
    gateway.start()
    gateway.check_published(plain, arriving["image_id"])
    gateway.wait_until_empty()


@pytest.mark.skipif(KILLS == 0, reason="expected: part of `make chaos`, see IMAGES_KILLS")
def test_i30_a_gateway_killed_at_random_moments_leaves_one_result_and_no_original(
    gateway: GatewayProcess, plain: Plain
) -> None:
    photo = bright_photo()
    for _ in range(KILLS):
        image_ids = [gateway.site.upload(photo) for _ in range(MAX_IN_WORK // 2)]
        time.sleep(random.uniform(0, 0.1))  # the moment of the kill is random
        gateway.kill()
        gateway.start()
        for image_id in image_ids:
            gateway.check_published(plain, image_id)
        gateway.wait_until_empty()
