"""Number and part of the hidden areas, in record, result, event and list (I-38)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from redis import Redis

from jobwire.local import LocalValkey
from jobwire.objects import Bucket, BucketConfig
from jobwire.systems.images.area_counts import hidden_by_label, hidden_count
from jobwire.systems.images.contract import (
    PUBLISHED_TYPE,
    ImageKeys,
    Stage,
    format_part,
    storage_key,
)
from tests.support import Plain, clause
from tests.support.s3 import boto_client
from tests.systems.images.gateway_process import bright_photo, dark_photo
from tests.systems.images.site import ImageSite, results
from tests.systems.images.test_foreign import processed

KEYS = ImageKeys("{areas}:")
PART = 0.0251
"""Of the bright photo: 15 × 15 and 16 × 16 of its 160 × 120 pixels."""
pytestmark = pytest.mark.keeps(f"{KEYS.result}*")


@pytest.fixture(scope="module")
def areas_site(
    valkey: LocalValkey,
    images_bucket: BucketConfig,
    tmp_path_factory: pytest.TempPathFactory,
    observer: Redis,
) -> Iterator[ImageSite]:
    with ImageSite(
        valkey.url,
        images_bucket,
        tmp_path_factory.mktemp("areas"),
        detect=("tests.systems.images.plugins:TwoOfBright",),
        key_prefix=KEYS.prefix,
    ) as running:
        yield running
    observer.flushall()  # its consumer creates its group again after each test


@clause("I-38", "I-3")
@pytest.mark.parametrize(
    ("body", "number", "part"), [(bright_photo(), 2, PART), (dark_photo(), 0, 0.0)]
)
def test_i38_number_and_part_of_hidden_areas_are_in_record_result_and_terminal_event(
    areas_site: ImageSite, plain: Plain, body: bytes, number: int, part: float
) -> None:
    site = areas_site
    image = site.announce()
    with site.events(image["image_id"]) as stream:
        assert site.put(image, body).status_code == 202
        events = list(stream)
    assert events[-1].data["hidden_areas"] == number
    assert events[-1].data["hidden_part"] == part
    assert not any({"hidden_areas", "hidden_part"} & {*event.data} for event in events[:-1])
    record = site.get(image["image_id"])
    assert (record["hidden_areas"], record["hidden_part"]) == (number, part)
    assert record["mostly_hidden"] is False
    assert site.client.get("/v1/images").json()["images"][0]["hidden_areas"] == number
    (result,) = results(plain, image["image_id"], KEYS.prefix)
    assert result["hidden_areas"] == str(number)
    assert float(result["hidden_part"]) == part
    stored = boto_client(site.bucket).head_object(
        Bucket=site.bucket.bucket, Key=result["storage_key"]
    )
    assert stored["Metadata"]["jobwire-hidden-part"] == result["hidden_part"]
    # Without the status the record answers.
    plain.delete(KEYS.status(image["image_id"]))
    with site.events(image["image_id"]) as stream:
        (event,) = stream
    assert (event.data["hidden_areas"], event.data["hidden_part"]) == (number, part)


@clause("I-38", "I-41")
@pytest.mark.parametrize(
    ("given", "number"),
    [({}, None), ("3", 3), ("", None), ("many", None), ("-1", None), ("9" * 12, None)],
)
def test_i38_results_of_gateways_that_do_not_know_the_member_are_taken(
    areas_site: ImageSite, plain: Plain, given: Any, number: int | None
) -> None:
    site = areas_site
    image_id = site.announce()["image_id"]
    extra = {"hidden_areas": given} if given != {} else {}
    fields = processed(image_id, **extra)
    status = {"stage": Stage.DONE.value, "progress": "100", "updated_at": fields["processed_at"]}
    plain.hset(KEYS.status(image_id), mapping=cast(Any, status))
    plain.xadd(KEYS.result, cast(Any, fields))
    image = site.ended(image_id)
    assert (image["status"], image["hidden_areas"]) == ("ready", number)
    with site.events(image_id) as stream:
        (event,) = stream
    assert event.data.get("hidden_areas") == number


@clause("I-38", "I-41")
@pytest.mark.parametrize(
    ("given", "part", "mostly"),
    [
        *[("0.3333", 0.3333, False), ("0.3334", 0.3334, True), ("1.0000", 1.0, True)],
        *[("0", 0.0, False), ("1.2", None, False), ("-1", None, False), ("nan", None, False)],
    ],
)
def test_i38_more_than_a_third_is_mostly_hidden(
    areas_site: ImageSite, plain: Plain, given: str, part: float | None, mostly: bool
) -> None:
    image_id = areas_site.announce()["image_id"]
    plain.xadd(KEYS.result, cast(Any, processed(image_id, hidden_areas="1", hidden_part=given)))
    image = areas_site.ended(image_id)
    assert (image["hidden_part"], image["mostly_hidden"]) == (part, mostly)


@clause("I-38")
def test_i38_something_hidden_is_never_no_part() -> None:
    assert [format_part(part) for part in (0, 1e-7, 0.25, 1)] == [
        *("0.0000", "0.0001", "0.2500", "1.0000")
    ]


@clause("I-38", "I-13")
async def test_i38_the_reconciler_counts_by_the_metadata_of_the_object(
    seaweedfs: BucketConfig,
) -> None:
    bucket, key = Bucket(seaweedfs), storage_key("counted")
    labels = ["face", "plate", "face"]
    metadata = {"jobwire-hidden-areas": hidden_by_label(labels)}
    await bucket.put(key, b"a photo", content_type=PUBLISHED_TYPE, metadata=metadata)
    found: Any = await bucket.get(key)
    assert hidden_count(found.metadata) == 3
    assert hidden_count({"jobwire-hidden-areas": hidden_by_label([])}) == 0
    many = [f"label-{number}" for number in range(9)]
    assert hidden_count({"jobwire-hidden-areas": hidden_by_label(many)}) is None
    assert hidden_count({}) is None
    await bucket.delete(key)
