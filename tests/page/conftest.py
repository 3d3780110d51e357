"""The sites of the page's tests; one of each for all tests of a parallel worker."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from jobwire.client import NotFound, Queue
from jobwire.objects import BucketConfig
from tests.page.app import QUEUE
from tests.page.media import MediaSite
from tests.page.site import PageSite
from tests.support.wait import wait_until_sync


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageSite]:
    """One for all tests of a parallel worker."""
    started = PageSite(tmp_path_factory.mktemp("page"))
    with started.fleet:
        started.start()
        yield started
        started.client.close()


@pytest.fixture(scope="session")
def keyed(site: PageSite) -> PageSite:
    site.start_keyed()
    return site


@pytest.fixture(scope="session")
def media(
    site: PageSite,
    seaweedfs: BucketConfig,
    cog_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[MediaSite]:
    """Images and predictions, on the same Valkey."""
    with MediaSite(site, seaweedfs, cog_url, tmp_path_factory.mktemp("media")) as started:
        yield started


@pytest.fixture(scope="session")
def reviewed(
    site: PageSite,
    seaweedfs: BucketConfig,
    cog_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[MediaSite]:
    """The same, with photos held for a reviewer if nothing was found in them."""
    env = {"JOBWIRE_IMAGES_REVIEW": "none_found", "JOBWIRE_IMAGES_KEY_PREFIX": "{review}:"}
    folder = tmp_path_factory.mktemp("reviewed")
    with MediaSite(site, seaweedfs, cog_url, folder, env) as started:
        yield started


@pytest.fixture
def films(site: PageSite) -> Iterator[Queue]:
    """The queue that the page's worker serves; it is empty after each test."""
    queue = site.client.queue(QUEUE)
    yield queue
    # No job may start while the queue is emptied: it would write to the next test's queue.
    queue.pause()
    for job in queue.jobs("waiting-children").jobs:
        with contextlib.suppress(NotFound):  # its last child ended meanwhile
            queue.delete(job.id)  # with its children; the verb below leaves such jobs
    wait_until_sync(lambda: queue.status().counts["active"] == 0, "the running jobs to end")
    queue.obliterate(force=True)
