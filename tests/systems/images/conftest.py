"""One image site for all tests that do not need their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from redis import Redis

from jobwire.local import LocalValkey
from jobwire.objects import BucketConfig
from tests.support import Fresh
from tests.support.s3 import boto_client, make_bucket
from tests.systems.images.site import ImageSite


@pytest.fixture(scope="session")
def images_bucket(seaweedfs: BucketConfig) -> BucketConfig:
    """A bucket with versions; it is discarded with its server."""
    config = replace(seaweedfs, bucket=Fresh()("images"))
    make_bucket(config)
    boto_client(config).put_bucket_versioning(
        Bucket=config.bucket, VersioningConfiguration={"Status": "Enabled"}
    )
    return config


@pytest.fixture(scope="module")
def shared_site(
    valkey: LocalValkey,
    images_bucket: BucketConfig,
    tmp_path_factory: pytest.TempPathFactory,
    observer: Redis,
) -> Iterator[ImageSite]:
    """API and upload gateway in one process; nothing is detected. Its keys are removed after each
    test."""
    folder: Path = tmp_path_factory.mktemp("images")
    with ImageSite(valkey.url, images_bucket, folder, max_in_work=64) as running:
        yield running
    observer.flushall()  # its consumer creates its group again after each test


@pytest.fixture
def site(shared_site: ImageSite, valkey: LocalValkey) -> ImageSite:
    """The shared site, in a test whose server is emptied afterwards."""
    assert valkey.alive
    return shared_site
