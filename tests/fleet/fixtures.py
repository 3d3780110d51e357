"""Fixtures for tests from the outside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.runner import Fleet


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A gateway and a worker that tests must not kill, one pair per pytest process."""
    with Fleet(tmp_path_factory.mktemp("fleet")) as running:
        running.start_gateway()
        running.worker = running.start_worker()
        yield running


@pytest.fixture
def own_fleet(tmp_path: Path) -> Iterator[Fleet]:
    """An installation for one test, which may break it; only its server runs yet."""
    with Fleet(tmp_path) as running:
        yield running
