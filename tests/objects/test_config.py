"""BucketConfig: checked when built, read from the settings, never shows a secret."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from jobwire.objects import BucketConfig, ConfigError
from jobwire.objects.settings import ObjectsSettings

GOOD: Final = BucketConfig(
    endpoint="http://127.0.0.1:9000", bucket="photos", access_key="key", secret_key="hush"
)


def test_repr_shows_no_secret() -> None:
    assert "hush" not in repr(GOOD)
    assert GOOD.where == "the bucket photos at http://127.0.0.1:9000"
    assert GOOD.on_loopback
    assert not replace(GOOD, endpoint="https://s3.example.com").on_loopback


def test_all_errors_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        BucketConfig(endpoint="ftp://x", bucket="No", access_key="", secret_key="", region="")
    assert [field for field, _ in caught.value.faults] == [
        "endpoint",
        "bucket",
        "access_key",
        "secret_key",
        "region",
    ]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["endpoint", "public_endpoint"])
@pytest.mark.parametrize(
    "address",
    ["http://", "s3.example.com", "http://h/path", "http://u:p@h", "http://h?q", "http://h:99999"],
)
def test_an_endpoint_with_missing_or_extra_parts_is_rejected(name: str, address: str) -> None:
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


def test_without_an_endpoint_its_keys_are_not_required() -> None:
    assert list(ObjectsSettings().check()) == []
    assert [field for field, _ in ObjectsSettings(bucket="No").check()] == ["bucket"]
    settings = ObjectsSettings(endpoint="minio:9000")
    assert [field for field, _ in settings.check()] == ["access_key", "secret_key"]
