"""Where the bucket is: checked at once, read from the settings, never showing a secret."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from jobwire.objects import BucketConfig, ConfigError
from jobwire.objects.settings import ObjectsSettings

GOOD: Final = BucketConfig(
    endpoint="http://127.0.0.1:9000", bucket="photos", access_key="key", secret_key="hush"
)


def test_a_good_one_shows_no_secret() -> None:
    assert "hush" not in repr(GOOD)
    assert GOOD.where == "the bucket photos at http://127.0.0.1:9000"
    assert GOOD.on_loopback
    assert not replace(GOOD, endpoint="https://s3.example.com").on_loopback


def test_every_fault_is_reported_at_once() -> None:
    with pytest.raises(ConfigError) as told:
        BucketConfig(endpoint="ftp://x", bucket="No", access_key="", secret_key="", region="")
    assert [field for field, _ in told.value.faults] == [
        "endpoint",
        "bucket",
        "access_key",
        "secret_key",
        "region",
    ]
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("name", ["endpoint", "public_endpoint"])
@pytest.mark.parametrize(
    "address",
    ["http://", "s3.example.com", "http://h/path", "http://u:p@h", "http://h?q", "http://h:99999"],
)
def test_an_address_with_too_little_or_too_much_is_refused(name: str, address: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}: must "):
        replace(GOOD, **{name: address})


def test_the_settings_become_a_config() -> None:
    settings = ObjectsSettings(
        endpoint="minio:9000",
        bucket="follow-images",
        access_key="minioadmin",
        secret_key="hush",
        public_endpoint="https://photos.example.com",
    )
    assert list(settings.check()) == []
    assert settings.config() == BucketConfig(
        endpoint="http://minio:9000",
        bucket="follow-images",
        access_key="minioadmin",
        secret_key="hush",
        public_endpoint="https://photos.example.com",
    )


def test_without_an_endpoint_only_what_is_given_is_checked() -> None:
    assert list(ObjectsSettings().check()) == []
    assert [field for field, _ in ObjectsSettings(bucket="No").check()] == ["bucket"]
    given = ObjectsSettings(endpoint="minio:9000")
    assert [field for field, _ in given.check()] == ["access_key", "secret_key"]
