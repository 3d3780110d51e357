"""What the toolkit's tests share: a stream of their own and a handler that remembers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import pytest

from jobwire.valkey import StreamMessage
from tests.support import Fresh, Plain, wait_until

GROUP = "workers"


@dataclass
class Recorder:
    """A handler that remembers what it got; `during` runs in the middle of each call."""

    during: Callable[[StreamMessage], object] = lambda _: None
    got: list[StreamMessage] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    async def __call__(self, message: StreamMessage) -> None:
        self.got.append(message)
        answer = self.during(message)
        if asyncio.iscoroutine(answer):
            await answer
        self.done.append(message.fields["n"])

    @property
    def numbers(self) -> list[str]:
        return [message.fields["n"] for message in self.got]

    async def until_done(self, *numbers: object) -> None:
        """Wait until these were handled, at least once each."""
        wanted = {str(number) for number in numbers}
        await wait_until(lambda: wanted <= set(self.done), f"the handler to finish {wanted}")


@pytest.fixture
def stream(fresh: Fresh) -> str:
    return fresh("stream")


def pending(plain: Plain, stream: str, group: str = GROUP) -> dict[str, tuple[str, int]]:
    """Entry id → its holder and how often it was delivered."""
    rows = plain.ask("XPENDING", stream, group, "-", "+", 1000)
    return {row[0]: (row[1], row[3]) for row in cast("list[tuple[str, str, int, int]]", rows)}


def idle_ms(plain: Plain, stream: str, id_: str) -> int:
    """For how long a pending entry has been idle."""
    rows = plain.ask("XPENDING", stream, GROUP, id_, id_, 1)
    return cast("list[tuple[str, str, int, int]]", rows)[0][2]


def entries(plain: Plain, stream: str) -> list[StreamMessage]:
    """All of a stream, as a plain client sees it."""
    rows = cast("list[tuple[str, dict[str, str]]]", plain.xrange(stream))
    return [StreamMessage(*row) for row in rows]


def left_pending(plain: Plain, stream: str, consumer: str, *numbers: int) -> list[str]:
    """Entries that a consumer took and never acknowledged; their ids."""
    ids = [str(plain.xadd(stream, {"n": number})) for number in numbers]
    groups = [group["name"] for group in plain.xinfo_groups(stream)]
    if GROUP not in groups:
        plain.xgroup_create(stream, GROUP, "0")
    plain.ask("XREADGROUP", "GROUP", GROUP, consumer, "COUNT", len(ids), "STREAMS", stream, ">")
    return ids
