"""Fixtures of the toolkit's tests: a stream per test, a recording handler, both event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

import pytest
import uvloop

from jobwire.valkey import StreamMessage
from tests.support import Fresh, Plain, wait_until

GROUP = "workers"
# asyncio and uvloop order timers and reads differently: the connection's tests run on both.
_BOTH_LOOPS = ("test_connection_", "test_operations", "test_scripts", "test_subscription")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
        "asyncio": asyncio.new_event_loop
    }
    if item.path.name.startswith(_BOTH_LOOPS):
        factories["uvloop"] = uvloop.new_event_loop
    return factories


@dataclass
class Recorder:
    """A handler that records its entries; `during` is called for each entry."""

    during: Callable[[StreamMessage], object] = lambda _: None
    got: list[StreamMessage] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    async def __call__(self, message: StreamMessage) -> None:
        self.got.append(message)
        result = self.during(message)
        if asyncio.iscoroutine(result):
            await result
        self.done.append(message.fields["n"])

    @property
    def numbers(self) -> list[str]:
        return [message.fields["n"] for message in self.got]

    async def until_done(self, *numbers: object) -> None:
        """Wait until these were handled, at least once each."""
        expected = {str(number) for number in numbers}
        await wait_until(lambda: expected <= set(self.done), f"the handler to finish {expected}")


@pytest.fixture
def stream(fresh: Fresh) -> str:
    return fresh("stream")


def pending(plain: Plain, stream: str, group: str = GROUP) -> dict[str, tuple[str, int]]:
    """Entry id → its consumer and its number of deliveries."""
    rows = plain.call("XPENDING", stream, group, "-", "+", 1000)
    return {row[0]: (row[1], row[3]) for row in cast("list[tuple[str, str, int, int]]", rows)}


def idle_ms(plain: Plain, stream: str, id_: str) -> int:
    """The idle time of a pending entry."""
    rows = plain.call("XPENDING", stream, GROUP, id_, id_, 1)
    return cast("list[tuple[str, str, int, int]]", rows)[0][2]


def entries(plain: Plain, stream: str) -> list[StreamMessage]:
    """All entries of a stream, read by a plain client."""
    rows = cast("list[tuple[str, dict[str, str]]]", plain.xrange(stream))
    return [StreamMessage(*row) for row in rows]


def left_pending(plain: Plain, stream: str, consumer: str, *numbers: int) -> list[str]:
    """Add entries and read them as a consumer without acknowledgement; their ids."""
    ids = [str(plain.xadd(stream, {"n": number})) for number in numbers]
    groups = [group["name"] for group in plain.xinfo_groups(stream)]
    if GROUP not in groups:
        plain.xgroup_create(stream, GROUP, "0")
    plain.call("XREADGROUP", "GROUP", GROUP, consumer, "COUNT", len(ids), "STREAMS", stream, ">")
    return ids
