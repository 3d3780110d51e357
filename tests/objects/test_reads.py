"""Bucket features for cloud functions: role keys, bounded reads, pages (P-29)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from jobwire.objects import Bucket, BucketConfig, Entry, Found, Missing, TooLarge
from tests.support import Fresh, clause
from tests.support.s3 import boto_client
from tests.support.s3_proxy import S3Proxy


@clause("P-29")
async def test_p29_an_object_above_the_limit_is_not_read(bucket: Bucket, fresh: Fresh) -> None:
    """Another program's object may be huge; reading it must not exhaust memory."""
    key = fresh()
    boto_client(bucket.config).put_object(Bucket=bucket.config.bucket, Key=key, Body=b"x" * 1001)
    with pytest.raises(TooLarge, match="has 1001 bytes, more than the limit of 1000") as refused:
        await bucket.get(key, max_bytes=1000)
    assert refused.value.size == 1001
    found = await bucket.get(key, max_bytes=1001)
    assert isinstance(found, Found)
    small = Bucket(replace(bucket.config, max_read_bytes=1000))
    with pytest.raises(TooLarge):
        await small.get(key)
    # The read after a refused conditional write has the same limit.
    with pytest.raises(TooLarge):
        await small.create(key, b"new", content_type="text/plain")


@clause("P-29")
async def test_p29_head_returns_size_and_time(bucket: Bucket, fresh: Fresh) -> None:
    key = fresh()
    assert await bucket.head(key) == Missing(key)
    await bucket.put(key, b"12345", content_type="text/plain")
    head = await bucket.head(key)
    assert isinstance(head, Entry)
    assert (head.key, head.size) == (key, 5)
    assert abs(head.modified_at - datetime.now(UTC)) < timedelta(minutes=5)


@clause("P-29")
@pytest.mark.parametrize("limit", [1, 2, 3, 1000])
async def test_p29_pages_of_one_level_are_complete_from_any_key_on(
    bucket: Bucket, fresh: Fresh, limit: int
) -> None:
    top = fresh()
    names = ["a.json", "b.json", "m/1", "m/2", "m/3", "n.json", "open/1", "open/2", "z ü&.json"]
    for name in names:
        await bucket.put(f"{top}/{name}", b"1", content_type="text/plain")
    wanted = [f"{top}/{name}" for name in names if "/" not in name]
    listed: list[str] = []
    after: str | None = ""
    requests = 0
    while after is not None:
        page = await bucket.page(f"{top}/", after=after, limit=limit)
        assert len(page.entries) <= limit
        listed += [entry.key for entry in page.entries]
        after = page.next_after
        requests += 1
        assert requests < 20
    assert listed == wanted
    rest = await bucket.page(f"{top}/", after=f"{top}/b.json")
    assert [entry.key for entry in rest.entries] == wanted[2:]
    assert (await bucket.page(f"{fresh()}/")).entries == ()


@clause("P-29")
async def test_p29_the_session_token_is_sent_with_every_request(
    moto: BucketConfig, fresh: Fresh
) -> None:
    key = fresh()
    with S3Proxy(moto) as proxy:
        bucket = Bucket(replace(proxy.config, session_token="role-token"))
        await bucket.put(key, b"1", content_type="text/plain")
        await bucket.create(fresh(), b"1", content_type="text/plain")
        await bucket.get(key)
        await bucket.page(f"{fresh()}/")
        await bucket.delete(key)
        assert len(proxy.requests) == 5
        for request in proxy.requests:
            assert request.headers["x-amz-security-token"] == "role-token"
            assert "x-amz-security-token" in request.headers["authorization"]
        signed = await bucket.presign(key, timedelta(minutes=1))
        assert "X-Amz-Security-Token=role-token" in signed
    assert "role-token" not in repr(bucket.config)
