"""A site with a bucket of its own for each test, on each of the stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from jobwire.objects import BucketConfig
from tests.support import Fresh
from tests.support.s3 import make_bucket
from tests.systems.predictions.site import Site
from tests.systems.predictions.telegram_site import TelegramSite

MakeSite = Callable[..., Site]


@pytest.fixture
def tasks_bucket(store: BucketConfig, fresh: Fresh) -> BucketConfig:
    """A bucket for this test alone, on each of the stores; it is discarded with its server."""
    config = replace(store, bucket=fresh("tasks"))
    make_bucket(config)
    return config


@pytest.fixture
def make_site(tasks_bucket: BucketConfig, cog_url: str) -> Iterator[MakeSite]:
    """Build a site with other options than the usual ones."""
    with ExitStack() as stack:

        def make(**options: Any) -> Site:
            return stack.enter_context(Site(tasks_bucket, cog_url, **options))

        yield make


@pytest.fixture
def site(make_site: MakeSite) -> Site:
    """A site on each of the stores, in turn."""
    return make_site()


MakeTelegramSite = Callable[..., TelegramSite]


@pytest.fixture
def make_telegram_site(
    moto: BucketConfig, fresh: Fresh, cog_url: str
) -> Iterator[MakeTelegramSite]:
    """Build a site with Telegram as its chat; on moto, since the store is not under test."""
    with ExitStack() as stack:

        def make(store: BucketConfig = moto, **options: Any) -> TelegramSite:
            config = replace(store, bucket=fresh("telegram"))
            make_bucket(config)
            return stack.enter_context(TelegramSite(config, cog_url, **options))

        yield make


@pytest.fixture
def telegram_site(make_telegram_site: MakeTelegramSite) -> TelegramSite:
    return make_telegram_site()
