"""The Streams engine, put through the life of a job."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from jobwire.valkey import Connection
from tests.conformance.life import LifeOfAJob
from tests.streams import StreamsLab


class TestStreams(LifeOfAJob):
    @pytest_asyncio.fixture
    async def lab(self, connection: Connection) -> AsyncIterator[StreamsLab]:
        async with StreamsLab(connection) as lab:
            yield lab


class TestStreamsBehindAPrefix(LifeOfAJob):
    """With a hash tag, as in a cluster, every key lies in one slot."""

    @pytest_asyncio.fixture
    async def lab(self, connection: Connection) -> AsyncIterator[StreamsLab]:
        async with StreamsLab(connection, key_prefix="{lane-7}:") as lab:
            yield lab
