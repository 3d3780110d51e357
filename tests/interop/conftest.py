"""Fixtures of the differential lab."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.bullmq_lab import Lab, laboratory
from tests.support.thirdparty import node_packages, python_packages


@pytest.fixture(scope="session")
def _lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    node_packages()
    python_packages()
    with laboratory(tmp_path_factory.mktemp("bullmq")) as lab:
        yield lab


@pytest.fixture
def lab(_lab: Lab) -> Lab:
    """Both sides, empty."""
    return _lab.reset()
