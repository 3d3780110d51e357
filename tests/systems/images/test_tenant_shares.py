"""I-44: upload slots and open records have shares per tenant."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from redis import Redis

from jobwire.local import LocalValkey
from jobwire.objects import BucketConfig
from tests.support import clause, wait_until_sync
from tests.support.jobs_http import bearer, key, problem
from tests.systems.images.site import ImageSite, Json, plain_photo, put, raw_put

KEYS: Final = (
    key("acme", "submit", "read", tenant="acme"),
    key("globex", "submit", "read", tenant="globex"),
    key("initech", "submit", "read", tenant="initech"),
)
SLOTS: Final = 4
MAX_OPEN: Final = 6


@pytest.fixture(scope="module")
def shared(
    valkey: LocalValkey,
    images_bucket: BucketConfig,
    tmp_path_factory: pytest.TempPathFactory,
    observer: Redis,
) -> Iterator[ImageSite]:
    folder: Path = tmp_path_factory.mktemp("shares")
    limits: dict[str, Any] = {"max_in_work": SLOTS, "tenant_max_open": MAX_OPEN}
    with ImageSite(valkey.url, images_bucket, folder, keys=KEYS, **limits) as running:
        yield running
    observer.flushall()


def announce(site: ImageSite, name: str) -> Json:
    body = {"content_type": "image/jpeg"}
    answer = site.client.post("/v1/images", json=body, headers=bearer(name))
    assert answer.status_code == 201, answer.text
    return answer.json()


@clause("I-44")
def test_i44_one_tenant_cannot_take_all_upload_slots(shared: ImageSite) -> None:
    """Slow uploads of one tenant kept everybody else from uploading."""
    photo = plain_photo()
    with contextlib.ExitStack() as opened:
        for _ in range(SLOTS // 2):
            image = announce(shared, "acme")
            opened.enter_context(raw_put(image, len(photo), photo[:-1]))
        more, theirs = announce(shared, "acme"), announce(shared, "globex")

        def is_refused() -> bool:
            # Until both of them are received, it may be accepted up to its claim.
            answer = put(shared.client, more, photo[:20], **{"content-type": "image/jpeg"})
            return answer.status_code == 503 and "your tenant" in answer.text

        wait_until_sync(is_refused, "a refusal")
        assert put(shared.client, theirs, photo).status_code == 202


@clause("I-44")
def test_i44_one_tenant_has_a_bounded_number_of_open_records(shared: ImageSite) -> None:
    def refused() -> bool:
        answer = shared.client.post(
            "/v1/images", json={"content_type": "image/jpeg"}, headers=bearer("initech")
        )
        if answer.status_code == 201:
            return False
        problem(answer, 429, "too_many_images")
        return True

    wait_until_sync(refused, "a refusal")
    announce(shared, "globex")
