"""A lab on the Streams wire for the contract's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from jobwire.valkey import Connection
from tests.raw import Raw
from tests.streams import StreamsLab
from tests.support import Plain


@pytest_asyncio.fixture
async def lab(connection: Connection) -> AsyncIterator[StreamsLab]:
    """A queue and as many workers as wanted, with a lease that can be waited for."""
    async with StreamsLab(connection) as opened:
        yield opened


@pytest.fixture
def raw(plain: Plain) -> Raw:
    """A stranger's eye on the keys."""
    return Raw(plain)
