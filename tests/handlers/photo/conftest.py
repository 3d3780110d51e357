"""One pool for all tests that do not need a pool of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobwire.handlers.photo import PhotoOptions, PoolLimits
from tests.handlers.photo.pool_runner import RunningPool


@pytest.fixture(scope="session")
def pool() -> Iterator[RunningPool]:
    """One worker with the face detector."""
    with RunningPool(PoolLimits(workers=1, photos_per_worker=100_000)) as running:
        yield running


@pytest.fixture(scope="session")
def plain_pool() -> Iterator[RunningPool]:
    """One worker that hides nothing."""
    with RunningPool(PoolLimits(workers=1), PhotoOptions(detect=())) as running:
        yield running


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "out.webp"
