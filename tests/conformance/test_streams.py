"""The lifecycle tests on the Streams engine."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator

import pytest_asyncio
from hypothesis import HealthCheck, given, settings

from jobwire.local import LocalValkey
from jobwire.valkey import Connection
from tests.conformance import random_lifecycles
from tests.conformance.lifecycle import LifeOfAJob
from tests.support.streams import StreamsLab


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


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(drawn=random_lifecycles.steps)
def test_random_lifecycles(valkey: LocalValkey, drawn: list[random_lifecycles.Step]) -> None:
    """Long leases: the result depends on the order of steps only, not on time."""

    async def live() -> None:
        async with Connection.open(valkey.url) as connection:
            # A prefix each, since the server is emptied after the last of them only.
            prefix = f"{secrets.token_hex(4)}:"
            never = {"lease_s": 3600.0, "max_deliveries": 1_000, "key_prefix": prefix}
            async with StreamsLab(connection, **never) as lab:
                workers = [await lab.worker() for _ in range(random_lifecycles.WORKERS)]
                renewers = [worker.lease_renewer() for worker in workers]
                try:
                    await random_lifecycles.Model(lab, [*workers], [*renewers]).run(drawn)
                finally:
                    for renewer in renewers:
                        renewer.close()

    asyncio.run(live())
