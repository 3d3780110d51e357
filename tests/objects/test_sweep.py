"""The sweep deletes expired objects for stores without lifecycle (P-6)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from jobwire.objects import Bucket
from jobwire.objects.lifecycle import Rule
from jobwire.objects.sweep import Swept, expired, sweep
from jobwire.objects.versions import ObjectVersion
from tests.support import clause
from tests.support.s3 import boto_client

RULES = [Rule("ExpireTasks", "tasks/", 2), Rule("ExpireInputImages", "images/input/", 14)]


def in_days(days: float) -> datetime:
    return datetime.now(UTC) + timedelta(days=days)


async def put_some(bucket: Bucket) -> None:
    for key in ("tasks/1.json", "tasks/open/a & b", "images/input/1.jpg", "users/1.json"):
        await bucket.put(key, b"x", content_type="text/plain")


@clause("P-6")
async def test_p6_a_sweep_deletes_expired_objects_only(own_bucket: Bucket) -> None:
    await put_some(own_bucket)
    assert await sweep(own_bucket, RULES, in_days(1.9)) == Swept(0, 0)
    assert await sweep(own_bucket, RULES, in_days(2.1)) == Swept(2, 0)
    left = [entry.key async for entry in own_bucket.list()]
    assert left == ["images/input/1.jpg", "users/1.json"]
    assert await sweep(own_bucket, RULES, in_days(20)) == Swept(1, 0)
    assert [entry.key async for entry in own_bucket.list()] == ["users/1.json"]


@clause("P-6")
async def test_p6_a_sweep_deletes_old_versions(own_bucket: Bucket) -> None:
    raw, name = boto_client(own_bucket.config), own_bucket.config.bucket
    raw.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    for _ in range(3):
        await put_some(own_bucket)
    # Replaced more than a day ago: two old versions of each object under the prefixes.
    assert await sweep(own_bucket, RULES, in_days(1.1)) == Swept(6, 0)
    assert len(raw.list_object_versions(Bucket=name).get("Versions", [])) == 3 + 3
    raw.delete_object(Bucket=name, Key="tasks/1.json")
    assert await sweep(own_bucket, RULES, in_days(2.1)) == Swept(3, 0)
    left = raw.list_object_versions(Bucket=name)
    kept = sorted(each.get("Key", "") for each in left.get("Versions", []))
    assert kept == ["images/input/1.jpg", *["users/1.json"] * 3]
    assert left.get("DeleteMarkers", []) == []


@clause("P-6")
@pytest.mark.parametrize("store", ["seaweedfs"], indirect=True)
@pytest.mark.parametrize("versioned", [False, True])
async def test_p6_a_sweep_of_more_than_one_page_is_complete(
    own_bucket: Bucket, versioned: bool
) -> None:
    raw, name = boto_client(own_bucket.config), own_bucket.config.bucket
    if versioned:
        raw.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    keys = [f"tasks/{number}.json" for number in range(1005)]
    for first in range(0, len(keys), 67):
        await asyncio.gather(
            *(own_bucket.put(key, b"", content_type="a/b") for key in keys[first : first + 67])
        )
    assert await sweep(own_bucket, RULES, in_days(2.1)) == Swept(1005, 0)
    assert "Versions" not in raw.list_object_versions(Bucket=name)


@clause("P-6")
async def test_p6_a_sweep_aborts_unfinished_uploads(own_bucket: Bucket) -> None:
    raw, name = boto_client(own_bucket.config), own_bucket.config.bucket
    for key in ("images/input/big.jpg", "users/big.json"):
        raw.create_multipart_upload(Bucket=name, Key=key)
    assert await sweep(own_bucket, RULES, in_days(1.1)) == Swept(0, 1)
    left = raw.list_multipart_uploads(Bucket=name).get("Uploads", [])
    assert [upload.get("Key") for upload in left] == ["users/big.json"]


NOW = datetime(2026, 6, 15, tzinfo=UTC)


def version(name: str, age_days: float, *, latest: bool = False) -> ObjectVersion:
    return ObjectVersion(
        key="tasks/1.json",
        version_id=name,
        latest=latest,
        marker=name.startswith("marker"),
        modified_at=NOW - timedelta(days=age_days),
    )


@clause("P-6")
@pytest.mark.parametrize(
    ("history", "gone"),
    [
        # The newest has expired: all expire.
        ([("a", 3), ("b", 2.5)], "ab"),
        # The newest has not; one version was replaced long ago, another recently.
        ([("a", 1.9), ("b", 1.8), ("c", 0.5)], "a"),
        # Replaced recently, of any age.
        ([("a", 30), ("b", 0.1)], ""),
        # A delete marker with an older version, and one without.
        ([("a", 1.9), ("marker", 0.5)], ""),
        ([("a", 1.9), ("marker", 1.5)], "a,marker"),
        ([("marker", 1.5)], "marker"),
        ([("marker", 0.5)], ""),
    ],
)
def test_p6_expired_versions(history: list[tuple[str, float]], gone: str) -> None:
    versions = [version(name, age) for name, age in history[:-1]]
    versions.append(version(*history[-1], latest=True))
    found = expired(versions, RULES[0], NOW)
    expected = gone.split(",") if "," in gone or "marker" in gone else list(gone)
    assert sorted(each.version_id for each in found) == sorted(expected)
