"""A store without working conditional writes is refused (P-11)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobwire.objects import AccessDenied, Bucket, BucketConfig, StoreRefused
from jobwire.objects.probe import PROBE_PREFIX, probe
from tests.support import clause
from tests.support.s3 import boto_client, rclone
from tests.support.s3_proxy import Forward, Reply, S3Proxy


@clause("P-11")
async def test_p11_a_store_with_conditional_writes_is_accepted(own_bucket: Bucket) -> None:
    await probe(own_bucket)
    assert [entry async for entry in own_bucket.list()] == []


@clause("P-11")
async def test_p11_the_probe_leaves_no_versions(own_bucket: Bucket) -> None:
    raw, name = boto_client(own_bucket.config), own_bucket.config.bucket
    raw.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    await probe(own_bucket, racers=0)
    left = raw.list_object_versions(Bucket=name)
    assert (left.get("Versions", []), left.get("DeleteMarkers", [])) == ([], [])


@clause("P-11")
async def test_p11_a_store_that_accepts_two_creates_is_refused(tmp_path: Path) -> None:
    with rclone(tmp_path) as config:
        bucket = Bucket(config)
        with pytest.raises(StoreRefused) as refused:
            await probe(bucket)
        assert [e.key async for e in bucket.list() if e.key.startswith(PROBE_PREFIX)] == []
    assert str(refused.value) == (
        f"the bucket {config.bucket} at {config.endpoint} cannot be used: it does not "
        "implement 'create only if absent': it accepted two creates (If-None-Match is ignored); "
        "choose a store with conditional writes"
    )


@clause("P-11")
@pytest.mark.parametrize(
    ("number", "promise"),
    [
        (2, "create only if absent"),
        (4, "replace only if unchanged"),
    ],
)
async def test_p11_each_missing_behaviour_is_named(
    moto: BucketConfig, number: int, promise: str
) -> None:
    """The write of that number succeeds despite its condition."""
    with S3Proxy(moto) as proxy:

        def accept(_forward: Forward) -> Reply | None:
            return Reply(200, (("ETag", '"made-up"'),))

        proxy.always(lambda write: accept if write == number else None)
        with pytest.raises(StoreRefused) as refused:
            await probe(Bucket(proxy.config), racers=0)
        assert refused.value.promise == promise


@clause("P-11")
async def test_p11_a_store_that_checks_and_writes_in_two_steps_is_refused(
    moto: BucketConfig,
) -> None:
    """Every concurrent create succeeds."""

    def accept(forward: Forward) -> Reply | None:
        return Reply(200, (*forward().headers, ("ETag", '"made-up"')))

    with S3Proxy(moto) as proxy:
        proxy.always(lambda write: accept if write > 4 else None)
        with pytest.raises(StoreRefused, match="4 of 4 concurrent creates won"):
            await probe(Bucket(proxy.config))


async def test_wrong_keys_raise_access_denied(seaweedfs: BucketConfig) -> None:
    with pytest.raises(AccessDenied):
        await probe(Bucket(replace(seaweedfs, secret_key="wrong")))
