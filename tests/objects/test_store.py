"""Bucket operations, checked with a second client (boto3), on two real servers."""

from __future__ import annotations

import asyncio
import os
import re
import urllib.error
import urllib.request
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from jobwire.objects import (
    AccessDenied,
    Bucket,
    BucketConfig,
    BucketMissing,
    Created,
    Entry,
    Exists,
    Found,
    Missing,
    Unavailable,
)
from tests.support import Fresh, Program
from tests.support.s3 import boto_client

JSON = "application/json; charset=utf-8"


async def test_put_and_get(bucket: Bucket, fresh: Fresh) -> None:
    key = f"{fresh()}/photo.jpg"
    body = os.urandom(300_000)
    version = await bucket.put(key, body, content_type="image/jpeg")
    found = await bucket.get(key)
    assert isinstance(found, Found)
    assert (found.key, found.body, found.content_type) == (key, body, "image/jpeg")
    assert found.version == version
    assert abs(found.modified_at - datetime.now(UTC)) < timedelta(minutes=5)
    seen = boto_client(bucket.config).head_object(Bucket=bucket.config.bucket, Key=key)
    assert (seen["ContentType"], seen["ETag"]) == ("image/jpeg", version.e_tag)


async def test_an_object_of_another_program_is_read(bucket: Bucket, fresh: Fresh) -> None:
    key = fresh()
    boto_client(bucket.config).put_object(
        Bucket=bucket.config.bucket, Key=key, Body=b"theirs", ContentType=JSON
    )
    found = await bucket.get(key)
    assert isinstance(found, Found)
    assert (found.body, found.content_type, found.version.history) == (b"theirs", JSON, ())


async def test_a_large_object_is_not_uploaded_in_parts(own_bucket: Bucket, fresh: Fresh) -> None:
    key, body = fresh(), os.urandom(11 * 1024 * 1024)
    await own_bucket.put(key, body, content_type="application/octet-stream")
    found = await own_bucket.get(key)
    assert isinstance(found, Found)
    assert found.body == body
    seen = boto_client(own_bucket.config).head_object(Bucket=own_bucket.config.bucket, Key=key)
    assert "-" not in seen["ETag"]  # multipart ETags have a hyphen


async def test_a_missing_object_is_missing(bucket: Bucket, fresh: Fresh) -> None:
    key = fresh()
    assert await bucket.get(key) == Missing(key)
    assert await bucket.range(key, 0, 10) == Missing(key)
    await bucket.delete(key)


async def test_a_range_ends_where_the_object_ends(bucket: Bucket, fresh: Fresh) -> None:
    key = fresh()
    await bucket.put(key, b"0123456789", content_type="text/plain")
    assert await bucket.range(key, 2, 3) == b"234"
    assert await bucket.range(key, 8, 100) == b"89"
    assert await bucket.range(key, 10, 1) == b""
    for start, length in ((-1, 2), (0, 0)):
        with pytest.raises(ValueError, match="range is empty or negative"):
            await bucket.range(key, start, length)


async def test_list_returns_the_objects_under_its_prefix(bucket: Bucket, fresh: Fresh) -> None:
    top = fresh()
    for name in ("a/1", "a/2", "a/b/3", "ab/4", "5"):
        await bucket.put(f"{top}/{name}", name.encode(), content_type="text/plain")
    listed = [entry async for entry in bucket.list(f"{top}/a/")]
    assert [entry.key for entry in listed] == [f"{top}/a/1", f"{top}/a/2", f"{top}/a/b/3"]
    assert all(isinstance(entry, Entry) and entry.size == 3 for entry in listed[:2])
    level = await bucket.level(f"{top}/")
    assert [entry.key for entry in level.entries] == [f"{top}/5"]
    assert level.prefixes == (f"{top}/a/", f"{top}/ab/")
    with pytest.raises(ValueError, match="must end with a slash"):
        await bucket.level(f"{top}/a")


async def test_a_list_of_more_than_one_page_is_complete(
    seaweedfs: BucketConfig, fresh: Fresh
) -> None:
    top, bucket = fresh(), Bucket(seaweedfs)
    keys = [f"{top}/{number:04}" for number in range(1005)]
    for first in range(0, len(keys), 67):
        await asyncio.gather(
            *(bucket.put(key, b"", content_type="a/b") for key in keys[first : first + 67])
        )
    assert [entry.key async for entry in bucket.list(f"{top}/")] == keys
    assert [entry.key for entry in (await bucket.level(f"{top}/")).entries] == keys


@pytest.mark.parametrize("name", ["a b", "ü/é.txt", "x%20y", "a+b", "a#b?c", "~t", "a&b=c*'()!"])
async def test_a_key_is_not_changed(bucket: Bucket, fresh: Fresh, name: str) -> None:
    top = fresh()
    key = f"{top}/{name}"
    await bucket.put(key, b"x", content_type="text/plain")
    assert [entry.key async for entry in bucket.list(f"{top}/")] == [key]
    listed = boto_client(bucket.config).list_objects_v2(
        Bucket=bucket.config.bucket, Prefix=f"{top}/"
    )
    assert [each.get("Key") for each in listed.get("Contents", [])] == [key]
    await bucket.delete(key)
    assert await bucket.get(key) == Missing(key)


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", ".", "a/../b", "a\\b", "a\nb", "k" * 1025])
async def test_a_key_that_some_store_would_change_is_rejected(moto: BucketConfig, key: str) -> None:
    bucket = Bucket(moto)
    for call in (
        bucket.get(key),
        bucket.put(key, b"", content_type="text/plain"),
        bucket.create(key, b"", content_type="text/plain"),
        bucket.delete(key),
        bucket.presign(key, timedelta(hours=1)),
    ):
        with pytest.raises(ValueError, match="is not a valid key"):
            await call


async def test_a_signed_url_reads_one_object_at_the_public_endpoint(
    seaweedfs: BucketConfig, fresh: Fresh
) -> None:
    key = f"{fresh()}/a b ü.txt"
    bucket = Bucket(seaweedfs)
    await bucket.put(key, b"public", content_type="text/plain")
    url = await bucket.presign(key, timedelta(minutes=10))
    assert _fetch(url) == (200, b"public")
    assert _fetch(url.partition("?")[0])[0] == 403
    assert _fetch(url.replace("a%20b", "a%20c"))[0] == 403

    public = replace(seaweedfs, public_endpoint="https://photos.example.com")
    signed = await Bucket(public).presign(key, timedelta(minutes=10))
    assert signed.startswith(f"https://photos.example.com/{seaweedfs.bucket}/")
    assert seaweedfs.secret_key not in signed
    assert "X-Amz-Expires=600&" in signed
    for life in (timedelta(0), timedelta(days=7, seconds=1)):
        with pytest.raises(ValueError, match="1 second to 7 days"):
            await bucket.presign(key, life)


async def test_delete_deletes_every_version(own_bucket: Bucket, fresh: Fresh) -> None:
    """A plain delete only hides an object in a versioned bucket."""
    raw, name = boto_client(own_bucket.config), own_bucket.config.bucket
    raw.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    key = fresh()
    for number in range(3):
        await own_bucket.put(key, b"%d" % number, content_type="text/plain")
    await own_bucket.put(f"{key}-other", b"stays", content_type="text/plain")
    raw.delete_object(Bucket=name, Key=key)
    await own_bucket.delete(key)
    left = raw.list_object_versions(Bucket=name)
    assert [each.get("Key") for each in left.get("Versions", [])] == [f"{key}-other"]
    assert left.get("DeleteMarkers", []) == []
    again = await own_bucket.create(key, b"new", content_type="text/plain")
    assert isinstance(again, Created)


async def test_a_ping_is_answered(bucket: Bucket) -> None:
    await bucket.ping()


async def test_a_missing_bucket_is_named(store: BucketConfig) -> None:
    bucket = Bucket(replace(store, bucket="nowhere"))
    for call in (
        bucket.ping(),
        bucket.get("key"),
        bucket.put("key", b"", content_type="text/plain"),
        bucket.create("key", b"", content_type="text/plain"),
        bucket.delete("key"),
        bucket.level(),
    ):
        with pytest.raises(BucketMissing, match=r"no bucket nowhere at http.*create it"):
            await call


async def test_wrong_keys_raise_access_denied(seaweedfs: BucketConfig) -> None:
    bucket = Bucket(replace(seaweedfs, secret_key="wrong"))
    for call in (
        bucket.ping(),
        bucket.get("key"),
        bucket.put("key", b"", content_type="text/plain"),
        bucket.create("key", b"", content_type="text/plain"),
        bucket.delete("key"),
        bucket.level(),
    ):
        with pytest.raises(AccessDenied) as caught:
            await call
        assert "\n" not in str(caught.value)
        assert "refused the access key" in str(caught.value)
        assert "SignatureDoesNotMatch" in str(caught.value)


async def test_an_unavailable_server_raises_unavailable(moto: BucketConfig) -> None:
    bucket = Bucket(replace(moto, endpoint="http://127.0.0.1:9"))
    calls = (
        bucket.ping(),
        bucket.get("key"),
        bucket.put("key", b"", content_type="text/plain"),
        bucket.create("key", b"", content_type="text/plain"),
        bucket.delete("key"),
        bucket.level(),
    )
    for error in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(error, Unavailable)
        assert error.retryable
        assert "\n" not in str(error)
        assert re.search(r"127.0.0.1:9 did not answer \(.*[Cc]onnection refused", str(error))


CREATE_TWICE = """
import asyncio, sys
from jobwire.objects import Bucket, BucketConfig
endpoint, bucket, access_key, secret_key, key = sys.argv[1:]
bucket = Bucket(BucketConfig(
    endpoint=endpoint, bucket=bucket, access_key=access_key, secret_key=secret_key))
async def main():
    first = await bucket.create(key, b"1", content_type="text/plain")
    second = await bucket.create(key, b"2", content_type="text/plain")
    print(type(first).__name__, type(second).__name__)
    await bucket.delete(key)
asyncio.run(main())
"""


def test_the_environment_changes_neither_keys_nor_conditions(
    seaweedfs: BucketConfig, fresh: Fresh
) -> None:
    """The library reads a session token and a proxy from the environment."""
    environment = {
        "AWS_SESSION_TOKEN": "alien",
        "AWS_SKIP_SIGNATURE": "true",
        "AWS_CONDITIONAL_PUT": "disabled",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_DEFAULT_REGION": "mars-1",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "http_proxy": "http://127.0.0.1:9",
    }
    arguments = (
        seaweedfs.endpoint,
        seaweedfs.bucket,
        seaweedfs.access_key,
        seaweedfs.secret_key,
        fresh(),
    )
    with Program.script(CREATE_TWICE, *arguments, env=environment) as program:
        assert program.wait() == 0, program.output
        assert program.output.split() == [Created.__name__, Exists.__name__]


def test_the_bucket_imports_no_heavy_library() -> None:
    """Cloud functions import it at each cold start."""
    heavy = ("boto3", "httpx", "pydantic", "fastapi", "cryptography", "jobwire.valkey")
    source = f"import sys, jobwire.objects.store; print(*set({heavy}) & set(sys.modules))"
    with Program("-c", source) as program:
        assert program.wait() == 0, program.output
        assert program.output.split() == []


def test_without_its_library_the_error_names_the_package() -> None:
    source = """
import sys
sys.modules["obstore"] = None
import jobwire.local, jobwire.objects.settings
print("the rest works")
from jobwire.objects import Bucket
"""
    with Program.script(source) as program:
        assert program.wait() == 1
        assert program.lines[0] == "the rest works"
        assert program.lines[-1].endswith("run: pip install 'jobwire[objects]'")


def _fetch(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()
