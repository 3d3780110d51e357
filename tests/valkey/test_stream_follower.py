"""Streams of many subjects: who is offered an event, what ends a subscription, gaps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, cast

import pytest
import pytest_asyncio

from jobwire.local import LocalValkey
from jobwire.valkey import Reply
from jobwire.valkey.stream_follower import StreamFollower
from jobwire.valkey.stream_ids import START, Position, read_position
from jobwire.valkey.stream_subscriptions import (
    EventSubscription,
    Feeding,
    FeedResult,
    Rules,
)
from tests.support import Fresh, Plain, clause, wait_until


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. `end` is terminal, and `again` reopens."""

    position: Position
    subject: str
    word: str

    @property
    def is_terminal(self) -> bool:
        return self.word == "end"


def read(reply: Reply) -> list[Entry]:
    rows = cast("list[tuple[str, list[str]]]", reply)
    return [
        Entry(read_position(entry_id) or START, subject, word)
        for entry_id, (_, subject, _, word) in rows
    ]


RULES: Final[Rules[Entry]] = Rules(
    read=read, subject=lambda entry: entry.subject, reopens=lambda entry: entry.word == "again"
)


class Listener:
    """A reader that keeps the words; it refuses them while it is full."""

    closed: bool = False

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.full = self.ended = False
        self.writable = asyncio.Event()

    def push(self, entry: Entry) -> bool:
        return self._take(entry.word)

    def send_gap(self) -> bool:
        return self._take("gap")

    def _take(self, word: str) -> bool:
        if not self.full:
            self.heard.append(word)
        return not self.full

    def end(self) -> None:
        self.ended = True

    async def wait_writable(self) -> None:
        await self.writable.wait()


class Stream:
    """A stream of the server, as another program writes it."""

    def __init__(self, plain: Plain, key: str) -> None:
        self._plain = plain
        self.key = key

    def add(self, subject: str, *words: str) -> None:
        for word in words:
            self._plain.call("XADD", self.key, "*", "subject", subject, "word", word)
        self._plain.expire(self.key, 600)

    def keep(self, count: int) -> None:
        self._plain.xtrim(self.key, maxlen=count, approximate=False)


@pytest.fixture
def stream(plain: Plain, fresh: Fresh) -> Stream:
    return Stream(plain, fresh("stream"))


@pytest_asyncio.fixture
async def follower(valkey: LocalValkey) -> AsyncIterator[StreamFollower[Entry]]:
    follower = StreamFollower(RULES)
    async with follower.running(valkey.url, "tests"):
        yield follower
    assert follower.followed == 0


@clause("B-12")
async def test_an_event_is_offered_to_the_watchers_of_its_subject_only(
    follower: StreamFollower[Entry], stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: an event of a busy queue was offered to every watcher of any of its jobs."""
    stream.add("a", "first")
    everything, own, others = Listener(), Listener(), [Listener() for _ in range(50)]
    follower.watch(stream.key, everything, START)
    follower.watch(stream.key, own, START, subject="a")
    for number, other in enumerate(others):
        follower.watch(stream.key, other, START, subject=f"other-{number}")
    await wait_until(lambda: own.heard == everything.heard == ["first"], "the past")

    fed: list[str | None] = []
    feed = EventSubscription[Entry].feed

    def noted(watch: EventSubscription[Entry], events: Sequence[Entry], *, whole: bool) -> Feeding:
        fed.append(watch.subject)
        return feed(watch, events, whole=whole)

    monkeypatch.setattr(EventSubscription, "feed", noted)
    stream.add("a", "second")
    await wait_until(lambda: own.heard == everything.heard == ["first", "second"], "the event")
    assert sorted(fed, key=str) == [None, "a"]
    assert not any(other.heard for other in others)


@clause("B-12")
async def test_events_of_others_move_a_watcher_on(
    follower: StreamFollower[Entry], stream: Stream
) -> None:
    """What is trimmed behind the newest entry was not for it, or it has it: no gap."""
    stream.add("a", "first")
    everything, own = Listener(), Listener()
    follower.watch(stream.key, everything, START)
    follower.watch(stream.key, own, START, subject="a")
    await wait_until(lambda: own.heard == everything.heard == ["first"], "the past")
    for word in ("one", "two", "three"):
        stream.add("b", "more", word)
        await wait_until(lambda word=word: everything.heard[-1] == word, "the events of another")
        stream.keep(1)
    stream.add("a", "second")
    await wait_until(lambda: own.heard == ["first", "second"], "its next event")
    assert "gap" not in everything.heard


@clause("B-12")
async def test_a_slow_watcher_of_a_trimmed_stream_gets_a_gap(
    follower: StreamFollower[Entry], stream: Stream
) -> None:
    stream.add("a", "first")
    quick, slow = Listener(), Listener()
    follower.watch(stream.key, quick, START)
    follower.watch(stream.key, slow, START, subject="a")
    await wait_until(lambda: slow.heard == quick.heard == ["first"], "the past")
    slow.full = True
    stream.add("a", "second", "third", "fourth")
    await wait_until(lambda: quick.heard[-1] == "fourth", "the quick one")
    stream.keep(1)
    slow.full = False
    slow.writable.set()
    await wait_until(lambda: slow.heard == ["first", "gap", "fourth"], "what is left")
    stream.add("a", "end")
    await wait_until(lambda: slow.ended, "the end")
    assert slow.heard[2:] == ["fourth", "end"]
    assert quick.heard == ["first", "second", "third", "fourth", "end"]
    assert not quick.ended, "the stream itself does not end"


@clause("B-12")
async def test_a_past_end_counts_only_if_nothing_reopens_the_subject(
    follower: StreamFollower[Entry], stream: Stream
) -> None:
    stream.add("a", "end", "after", "again")
    stream.add("b", "end", "after")
    again, over, known = Listener(), Listener(), Listener()
    follower.watch(stream.key, again, START, subject="a")
    follower.watch(stream.key, over, START, subject="b")
    follower.watch(stream.key, known, START, subject="c", finished=True)
    await wait_until(lambda: over.ended and known.ended, "the ends")
    assert over.heard == ["end", "after"]
    await wait_until(lambda: again.heard == ["end", "after", "again"], "the past")
    assert not again.ended
    stream.add("a", "end", "after")
    await wait_until(lambda: again.ended, "the end")
    assert again.heard[3:] == ["end"], "a new end is the last event"


@clause("B-8")
async def test_waiters_are_released_also_those_that_come_later(
    follower: StreamFollower[Entry], stream: Stream
) -> None:
    with follower.waiting(stream.key, lambda entry: entry.word, START, subject="a") as found:
        stream.add("b", "first")
        stream.add("a", "second")
        assert await found == "second"
    with follower.waiting(stream.key, lambda _: None, START) as found:
        follower.release_waiters()
        assert await found is None
    with follower.waiting(stream.key, lambda _: None, START) as found:
        assert await found is None


async def test_a_reader_refuses_an_event_behind_those_of_others() -> None:
    """Its position is the entry before: what is not for it is not read again."""
    events = [Entry(Position(n, 0), subject, "word") for n, subject in enumerate("bbaa", 1)]
    reader = Listener()
    reader.full = True
    subscription = EventSubscription(RULES, reader, START, "a", finished=False)
    assert subscription.feed(events, whole=True) == Feeding(FeedResult.REFUSED, 2)
    assert subscription.at == Position(2, 0)
