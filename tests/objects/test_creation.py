"""Creating a bucket on a server that has none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobwire.objects import AccessDenied, BucketConfig
from jobwire.objects.creation import create_bucket
from jobwire.objects.signed import SignedCalls
from jobwire.objects.versions import is_versioned
from tests.support import Fresh, clause
from tests.support.s3 import boto_client


@clause("O-8")
async def test_o8_creating_a_bucket_enables_versioning_and_can_be_repeated(
    store: BucketConfig, fresh: Fresh
) -> None:
    config = replace(store, bucket=fresh("made").lower())
    calls = SignedCalls(config)
    assert await create_bucket(calls)
    await create_bucket(calls)
    assert await is_versioned(calls)
    boto_client(config).delete_bucket(Bucket=config.bucket)


@clause("O-8")
async def test_o8_a_bucket_is_not_created_with_wrong_keys(
    seaweedfs: BucketConfig, fresh: Fresh
) -> None:
    wrong = replace(seaweedfs, bucket=fresh("none").lower(), secret_key="wrong")
    with pytest.raises(AccessDenied):
        await create_bucket(SignedCalls(wrong))
