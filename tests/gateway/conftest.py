"""Gateways that many tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jobwire.gateway.settings import GatewaySettings
from tests.gateway.features import test_feature
from tests.gateway.server import Serving, key


@pytest.fixture(scope="session")
def open_gateway() -> Iterator[Serving]:
    """Without keys: open to this machine."""
    with Serving(GatewaySettings(), test_feature()) as served:
        yield served


@pytest.fixture(scope="session")
def keyed_gateway() -> Iterator[Serving]:
    """With keys of two tenants."""
    keys = (
        key("writer", "submit", tenant="acme"),
        key("reader", "read", tenant="acme"),
        key("boss", "admin", tenant="acme"),
        key("other", "submit", "read", "admin", tenant="globex"),
    )
    with Serving(GatewaySettings(keys=keys), test_feature()) as served:
        yield served
