"""A lab on the Streams wire for the contract's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from jobwire.gateway.settings import GatewaySettings
from jobwire.local import LocalValkey
from jobwire.valkey import Connection
from tests.support import Plain
from tests.support.jobs_http import ServedJobs, key
from tests.support.raw import Raw
from tests.support.streams import StreamsLab


@pytest_asyncio.fixture
async def lab(connection: Connection) -> AsyncIterator[StreamsLab]:
    """A queue and as many workers as a test needs."""
    async with StreamsLab(connection) as opened:
        yield opened


@pytest.fixture
def raw(plain: Plain) -> Raw:
    """A plain client's view of the keys."""
    return Raw(plain)


@pytest.fixture(scope="session")
def served(valkey: LocalValkey) -> Iterator[ServedJobs]:
    """A gateway without keys, for all tests of this worker."""
    with ServedJobs(valkey.url) as started:
        yield started


@pytest.fixture(scope="session")
def keyed(valkey: LocalValkey) -> Iterator[ServedJobs]:
    """A gateway with keys of several tenants."""
    keys = (
        key("plain", "submit", "read"),
        key("boss", "admin"),
        key("acme", "submit", "read", tenant="acme"),
        key("acme-reader", "read", tenant="acme"),
        key("acme-signal", "signal", tenant="acme"),
        key("globex-signal", "signal", tenant="globex"),
        key("globex", "submit", "read", tenant="globex"),
        key("acme-admin", "admin", tenant="acme"),
        key("operator", "read", "admin", tenant="*"),
    )
    with ServedJobs(valkey.url, gateway=GatewaySettings(keys=keys)) as started:
        yield started
