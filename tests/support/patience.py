"""Limits of the product for an answer of a server, longer than any test has to wait for one; and
those of the tests' own HTTP clients.

A server or a test process may stand still for seconds, on a busy machine or by `make flaky`. After
two or three the product gives up, as it says, and its caller decides. A test has asked once and
would fail. A test of a server that is silent on purpose uses `product_limits`.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from datetime import timedelta
from types import ModuleType
from typing import Final

import httpx
import pytest

from jobwire.gateway import all_systems, health, metrics
from jobwire.systems import backends
from jobwire.systems.jobs import shard_overview, shards
from jobwire.valkey import Config
from jobwire.worker import queue_loop
from tests.support.wait import DEADLINE_S

PATIENCE: Final = timedelta(seconds=15)
_LIMITS: Final[Sequence[tuple[ModuleType, str, float]]] = [
    (module, name, getattr(module, name))
    for module, name in (
        (all_systems, "_TIMEOUT_S"),
        (backends, "_SHARD_TIMEOUT_S"),
        (health, "_TIMEOUT_S"),
        (metrics, "_TIMEOUT_S"),
        (shard_overview, "_TIMEOUT_S"),
        (shards, "_SILENT_S"),
        (queue_loop, "_IN_LINE_S"),
    )
]
"""With the product's own values."""
_TIMEOUTS: Final = ("dial_timeout_s", "read_timeout_s", "write_timeout_s")


def pytest_configure() -> None:
    for module, name, _ in _LIMITS:
        setattr(module, name, PATIENCE.total_seconds())
    # What `Config(…)` and `Config.from_url(…)` have without a value of their own.
    defaults = Config.__init__.__kwdefaults__
    assert defaults is not None
    defaults.update(dict.fromkeys(_TIMEOUTS, PATIENCE.total_seconds()))
    # httpx has one object for all calls that name no timeout: five seconds.
    unnamed = inspect.signature(httpx.Client).parameters["timeout"].default
    assert isinstance(unnamed, httpx.Timeout)
    unnamed.connect = unnamed.read = unnamed.write = unnamed.pool = DEADLINE_S


@pytest.fixture
def product_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits that users have, for a test whose server does not answer."""
    for module, name, value in _LIMITS:
        monkeypatch.setattr(module, name, value)
