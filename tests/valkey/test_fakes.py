"""T-2: the toolkit works with any object that has the `Client` protocol, as in users' tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TypedDict, cast

import pytest

from jobwire.valkey import (
    Answer,
    Arg,
    Client,
    ConfigError,
    Consumer,
    DeadLetter,
    GroupExists,
    HealthChecker,
    Pending,
    PendingInfo,
    Producer,
    ProgressTracker,
    Reclaimer,
    StreamMessage,
)
from tests.support import clause, wait_until


class Fake:
    """One stream and one group in memory, written by a user from the protocol alone."""

    def __init__(self) -> None:
        self.streams: dict[str, list[StreamMessage]] = {}
        self.unread: list[StreamMessage] = []
        self.pending: dict[str, tuple[StreamMessage, str, int]] = {}
        self.hashes: dict[str, dict[str, str]] = {}
        self.ttls: dict[str, float] = {}
        self.groups: set[str] = set()

    async def ping(self) -> str:
        return "PONG"

    async def close(self) -> None: ...

    async def xadd(self, stream: str, fields: Mapping[str, Arg]) -> str:
        kept = self.streams.setdefault(stream, [])
        message = StreamMessage(f"{len(kept) + 1}-0", {key: str(fields[key]) for key in fields})
        kept.append(message)
        if stream == "work":
            self.unread.append(message)
        return message.id

    async def xadd_maxlen(
        self, stream: str, maxlen: int, fields: Mapping[str, Arg], *, approximate: bool = False
    ) -> str:
        return await self.xadd(stream, fields)

    async def xreadgroup(
        self,
        group: str,
        consumer: str,
        stream: str,
        *,
        start: str = ">",
        count: int = 10,
        block_s: float | None = None,
    ) -> list[StreamMessage]:
        taken, self.unread = self.unread[:count], self.unread[count:]
        self.pending |= {message.id: (message, consumer, 1) for message in taken}
        return taken

    async def xack(self, stream: str, group: str, *ids: str) -> int:
        return sum(self.pending.pop(id_, None) is not None for id_ in ids)

    async def xclaim(
        self, stream: str, group: str, consumer: str, min_idle_s: float, *ids: str
    ) -> list[StreamMessage]:
        found = {id_: self.pending[id_] for id_ in ids if id_ in self.pending}
        self.pending |= {id_: (row[0], consumer, row[2] + 1) for id_, row in found.items()}
        return [row[0] for row in found.values()]

    async def xpending(self, stream: str, group: str) -> PendingInfo:
        return PendingInfo(len(self.pending), {})

    async def xpending_range(
        self,
        stream: str,
        group: str,
        start: str,
        limit: int,
        *,
        consumer: str | None = None,
        idle_s: float = 0.0,
    ) -> list[Pending]:
        return [
            Pending(id_, holder, 0, count)
            for id_, (_, holder, count) in self.pending.items()
            if start == "-" and consumer in (None, holder)
        ]

    async def xtrim(self, stream: str, maxlen: int, *, approximate: bool = False) -> int:
        return 0

    async def xgroup_create(self, stream: str, group: str, start: str = "0") -> None:
        if group in self.groups:
            raise GroupExists("BUSYGROUP")
        self.groups.add(group)

    async def xgroup_create_mkstream(self, stream: str, group: str, start: str = "0") -> None:
        await self.xgroup_create(stream, group, start)

    async def group_exists(self, stream: str, group: str) -> bool:
        return group in self.groups

    async def hset(self, key: str, fields: Mapping[str, Arg]) -> int:
        self.hashes.setdefault(key, {}).update({name: str(fields[name]) for name in fields})
        return len(fields)

    async def hgetall(self, key: str) -> dict[str, str]:
        return self.hashes.get(key, {})

    async def expire(self, key: str, ttl_s: float) -> bool:
        self.ttls[key] = ttl_s
        return True

    async def delete(self, *keys: str) -> int:
        return sum(self.hashes.pop(key, None) is not None for key in keys)


class Names(TypedDict):
    stream: str
    group: str
    consumer: str


def names(consumer: str) -> Names:
    return {"stream": "work", "group": "workers", "consumer": consumer}


@clause("T-2", "T-6")
async def test_t02_a_consumer_reads_from_a_fake() -> None:
    fake = Fake()
    fake.groups.add("workers")
    seen: list[str] = []

    def handle(message: StreamMessage) -> Answer:
        seen.append(message.fields["n"])
        return DeadLetter("not wanted") if message.fields["n"] == "2" else None

    async with Consumer(fake, **names("c1"), handler=handle):
        for number in range(4):
            await Producer(fake).publish("work", {"n": number})
        await wait_until(lambda: len(seen) == 4 and not fake.pending, "all entries")
    assert seen == ["0", "1", "2", "3"]
    (letter,) = fake.streams["work:dead"]
    assert letter.fields["reason"] == "not wanted"


class Small(Fake):
    """As in the plan of the toolkit: XPENDING gives the summary only."""

    xpending_range = None  # pyright: ignore[reportAssignmentType] - it has none


@clause("T-2", "T-6")
async def test_t02_a_consumer_reads_from_a_fake_that_lists_no_pending_entries() -> None:
    fake = Small()
    seen: list[str] = []
    async with Consumer(fake, **names("c1"), handler=lambda entry: seen.append(entry.fields["n"])):
        for number in range(4):
            await Producer(fake).publish("work", {"n": number})
        await wait_until(lambda: len(seen) == 4 and not fake.pending, "all entries")
    assert seen == ["0", "1", "2", "3"]
    with pytest.raises(ConfigError, match="Small has no method xpending_range"):
        Reclaimer(fake, **names("r1"), handler=print)


@clause("T-2", "T-7")
async def test_t02_a_reclaimer_claims_from_a_fake() -> None:
    fake = Fake()
    await fake.xadd("work", {"n": 1})
    await fake.xreadgroup("workers", "gone", "work")
    handled = asyncio.Event()

    def handle(_: StreamMessage) -> None:
        handled.set()

    async with Reclaimer(fake, **names("r1"), handler=handle, scan_interval_s=0.01):
        await handled.wait()
        await wait_until(lambda: not fake.pending, "the acknowledgement")


@clause("T-2", "T-8", "T-9")
async def test_t02_tracker_and_health_checker_use_a_fake() -> None:
    fake = Fake()
    tracker = ProgressTracker(fake, ttl_s=60, prefix="status:")
    await tracker.set_progress("1", {"stage": "decode"})
    await tracker.set_progress("1", {"progress": 15})
    assert await tracker.get_progress("1") == {"stage": "decode", "progress": "15"}
    assert fake.ttls == {"status:1": 60}
    assert await tracker.delete_progress("1")
    checker = HealthChecker(fake)
    assert (await checker.ping()).latency_s >= 0
    assert not await checker.group_exists("work", "workers")
    with pytest.raises(ConfigError, match="Fake is not a Connection"):
        await checker.summary()


_BUILD: list[Callable[[Client], object]] = [
    Producer,
    ProgressTracker,
    HealthChecker,
    lambda client: Consumer(client, **names("c"), handler=print),
    lambda client: Reclaimer(client, **names("r"), handler=print),
]


@clause("T-2", "T-5", "T-6", "T-7", "T-8", "T-9")
@pytest.mark.parametrize("build", _BUILD)
def test_t02_a_missing_client_is_refused_when_built(build: Callable[[Client], object]) -> None:
    with pytest.raises(ConfigError, match=r"^connection: is missing; open one"):
        build(cast("Client", None))
    with pytest.raises(ConfigError, match=r"^connection: object has no method "):
        build(cast("Client", object()))
