"""The follower: live events of many jobs over one tracked connection; gaps, slow readers."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest
import pytest_asyncio

from jobwire.job.messages import JobId
from jobwire.local import LocalValkey
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.events import StreamEvent
from jobwire.systems.jobs.follow import Follower
from jobwire.valkey import Config
from jobwire.valkey.stream_ids import START, Position, read_position
from jobwire.valkey.stream_subscriptions import EventSubscription, Feeding, following
from tests.support import Fresh, Plain, Proxy, clause, wait_until


class Collector:
    """A reader that keeps what it gets; its capacity can be limited."""

    def __init__(self, capacity: int = 10**9) -> None:
        self.seen: list[str] = []
        self.ended = self.closed = False
        self._left = capacity
        self._more = asyncio.Event()
        self.refusals = 0

    def push(self, event: StreamEvent) -> bool:
        return self._take(event.id)

    def send_gap(self) -> bool:
        return self._take("gap")

    def _take(self, what: str) -> bool:
        assert not self.ended, "nothing comes after the end"
        if self.closed or self._left == 0:
            self.refusals += 1
            return False
        self._left -= 1
        self.seen.append(what)
        return True

    def end(self) -> None:
        self.ended = True

    def add_capacity(self, more: int) -> None:
        self._left += more
        self._more.set()

    async def wait_writable(self) -> None:
        while self._left == 0 and not self.closed:
            self._more.clear()
            await self._more.wait()


class Foreign:
    """A worker that only uses XADD."""

    def __init__(self, plain: Plain, job_id: JobId) -> None:
        self._plain = plain
        self.job_id = job_id
        self.key = f"job:{job_id}:events"
        self.ids: list[str] = []
        plain.hset(f"job:{job_id}", mapping={"job_id": job_id, "status": "running"})
        plain.expire(f"job:{job_id}", 600)

    def add(self, kind: str = "log", count: int = 1, data: str = "{}") -> list[str]:
        for _ in range(count):
            # As every gateway writes it first.
            first = "queued" if kind == "log" and not self.ids else kind
            fields = ("type", first, "ts", "1", "step", "foreign", "data", data)
            self.ids.append(cast(str, self._plain.call("XADD", self.key, "*", *fields)))
        self._plain.expire(self.key, 600)
        return self.ids


@pytest.fixture
def foreign(plain: Plain, fresh: Fresh) -> Foreign:
    return Foreign(plain, JobId(fresh("job")))


@pytest_asyncio.fixture
async def follower(valkey: LocalValkey) -> AsyncIterator[Follower]:
    follower = Follower(StreamsKeys())
    async with follower.running(valkey.url, "tests"):
        yield follower
    assert follower.followed == 0


@clause("J-15", "J-17")
async def test_j15_every_event_arrives_once_and_in_order_and_the_terminal_one_ends(
    follower: Follower, foreign: Foreign
) -> None:
    early, late = Collector(), Collector()
    follower.watch(foreign.job_id, early)
    foreign.add(count=150)
    await wait_until(lambda: early.seen == foreign.ids, "the events of a foreign worker")
    follower.watch(foreign.job_id, late)
    foreign.add(count=20)
    foreign.add("done")
    await wait_until(lambda: early.ended and late.ended, "the end")
    assert early.seen == late.seen == foreign.ids
    assert follower.followed == 0


@clause("J-15")
async def test_j15_a_reader_resumes_after_its_last_event_id(
    follower: Follower, foreign: Foreign
) -> None:
    foreign.add(count=10)
    third = read_position(foreign.ids[2])
    assert third is not None
    reader = Collector()
    follower.watch(foreign.job_id, reader, third)
    foreign.add("canceled")
    await wait_until(lambda: reader.ended, "the end")
    assert reader.seen == foreign.ids[3:]

    done = Collector()
    last = read_position(foreign.ids[-1])
    assert last is not None
    follower.watch(foreign.job_id, done, last)
    await wait_until(lambda: done.ended, "an end for a reader that has seen the last event")
    assert done.seen == []


@clause("J-15", "R-8")
async def test_j15_trimmed_entries_are_sent_as_a_gap(
    follower: Follower, foreign: Foreign, plain: Plain
) -> None:
    foreign.add(count=10)
    plain.xtrim(foreign.key, maxlen=3, approximate=False)
    second = read_position(foreign.ids[1])
    assert second is not None
    reader = Collector()
    follower.watch(foreign.job_id, reader, second)
    foreign.add("done")
    await wait_until(lambda: reader.ended, "the end")
    assert reader.seen == ["gap", *foreign.ids[7:]]


@clause("J-15", "R-8")
async def test_j15_a_reader_trimmed_while_its_buffer_was_full_gets_one_gap(
    follower: Follower, foreign: Foreign, plain: Plain
) -> None:
    reader = Collector(capacity=2)
    follower.watch(foreign.job_id, reader)
    foreign.add(count=10)
    await wait_until(lambda: reader.refusals, "the reader to be full")
    plain.xtrim(foreign.key, maxlen=2, approximate=False)
    for _ in range(6):
        reader.add_capacity(1)
        before = reader.refusals
        await wait_until(lambda before=before: reader.refusals > before or len(reader.seen) == 5)
    foreign.add("done")
    reader.add_capacity(5)
    await wait_until(lambda: reader.ended, "the end")
    assert reader.seen == [*foreign.ids[:2], "gap", *foreign.ids[8:]]


@clause("J-15", "R-8")
@pytest.mark.parametrize("position", [Position(5, 0), Position(10**15, 0)])
async def test_j15_an_unknown_event_id_gets_a_gap_and_the_existing_events(
    follower: Follower, foreign: Foreign, position: Position
) -> None:
    """Older than the stream (it expired and was created again) or beyond it (a failover lost its
    end)."""
    foreign.add(count=3)
    reader = Collector()
    follower.watch(foreign.job_id, reader, position)
    foreign.add("done")
    await wait_until(lambda: reader.ended, "the end")
    assert reader.seen == ["gap", *foreign.ids]


@clause("J-15", "R-8")
async def test_j15_a_new_reader_during_a_read_gets_no_gap(
    valkey: LocalValkey, proxy: Proxy, foreign: Foreign
) -> None:
    """Regression: the read in flight began at the position of the other readers. It was used for
    the new reader, whose earlier position was not in it: a false gap."""
    foreign.add(count=10)
    first, last = read_position(foreign.ids[0]), read_position(foreign.ids[-1])
    assert first is not None
    assert last is not None
    ahead, behind = Collector(), Collector()
    follower = Follower(StreamsKeys())
    async with follower.running(proxy.url(valkey.url), "tests"):
        with proxy.hold("XRANGE") as hold:
            follower.watch(foreign.job_id, ahead, last)
            await hold.until_reached()
            follower.watch(foreign.job_id, behind, first)
        foreign.add("done")
        await wait_until(lambda: ahead.ended and behind.ended, "the end")
    assert (ahead.seen, behind.seen) == (foreign.ids[10:], foreign.ids[1:])


@clause("J-17")
async def test_j17_a_reader_with_a_full_buffer_delays_no_other_and_misses_nothing(
    follower: Follower, foreign: Foreign
) -> None:
    slow, quick = Collector(capacity=3), Collector()
    follower.watch(foreign.job_id, slow)
    follower.watch(foreign.job_id, quick)
    foreign.add(count=300)
    await wait_until(lambda: quick.seen == foreign.ids, "the fast reader to have all events")
    assert slow.seen == foreign.ids[:3]
    while not slow.ended:
        if len(foreign.ids) == 300:
            foreign.add("done")
        slow.add_capacity(7)
        await asyncio.sleep(0)
    assert slow.seen == foreign.ids


@clause("J-17")
async def test_j17_one_connection_and_one_read_for_many_changes(
    valkey: LocalValkey, proxy: Proxy, plain: Plain, fresh: Fresh
) -> None:
    jobs = [Foreign(plain, JobId(fresh("job"))) for _ in range(50)]
    readers = [Collector() for _ in jobs]
    follower = Follower(StreamsKeys())
    async with follower.running(proxy.url(valkey.url), "tests"):
        for job, reader in zip(jobs, readers, strict=True):
            follower.watch(job.job_id, reader)
        await wait_until(lambda: len(proxy.seen("XRANGE")) == 50, "the first reads")
        proxy.forget_seen()
        with plain.pipeline(transaction=True) as many:
            for job in jobs:
                for kind in ("queued", "log", "log", "log"):
                    many.xadd(job.key, {"type": kind, "ts": "1", "step": "", "data": "{}"})
                many.expire(job.key, 600)
            many.execute()
        await wait_until(lambda: all(len(reader.seen) == 4 for reader in readers), "all of them")
        assert proxy.connections == 1
        assert len(proxy.seen("XRANGE")) == 50


@clause("J-17", "R-8")
async def test_j17_a_cut_connection_and_an_unarmed_server_lose_nothing(
    valkey: LocalValkey, proxy: Proxy, foreign: Foreign
) -> None:
    reader = Collector()
    follower = Follower(StreamsKeys())
    async with follower.running(proxy.url(valkey.url), "tests"):
        follower.watch(foreign.job_id, reader)
        for number in range(6):
            foreign.add(count=3)
            if number % 2:  # no read is in flight that would fail and be repeated
                await wait_until(lambda: reader.seen == foreign.ids, "the earlier events")
            proxy.cut()
            foreign.add(count=3)
            await wait_until(lambda: reader.seen == foreign.ids, "the events of the meantime")
        proxy.cut_reply("XRANGE")
        foreign.add("done")
        await wait_until(lambda: reader.ended, "the end")
    assert reader.seen == foreign.ids


@clause("J-17")
async def test_j17_a_half_open_server_connection_is_detected(
    valkey: LocalValkey, proxy: Proxy, foreign: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a watched job nothing else is sent, so only the PING can fail."""
    monkeypatch.setattr("jobwire.valkey.tracking._TICK_S", 0.1)
    reader = Collector()
    follower = Follower(StreamsKeys())
    config = dataclasses.replace(Config.from_url(proxy.url(valkey.url)), read_timeout_s=0.5)
    async with follower.running(config, "tests"):
        await wait_until(lambda: proxy.accepted == 1, "the connection")
        proxy.silence()
        await wait_until(lambda: proxy.accepted > 1, "another try to connect")
        proxy.accept()
        follower.watch(foreign.job_id, reader)
        foreign.add("done")
        await wait_until(lambda: reader.ended, "the end")


@clause("J-17")
async def test_j17_an_emptied_server_ends_the_streams_of_its_jobs(
    follower: Follower, foreign: Foreign, plain: Plain
) -> None:
    reader = Collector()
    follower.watch(foreign.job_id, reader)
    foreign.add(count=2)
    await wait_until(lambda: reader.seen == foreign.ids, "the events")
    plain.flushall()
    await wait_until(lambda: reader.ended, "the end")
    assert reader.seen == [*foreign.ids, "gap"]


@clause("J-15")
async def test_j15_a_job_whose_events_expired_continues_after_a_gap(
    follower: Follower, foreign: Foreign, plain: Plain
) -> None:
    reader = Collector()
    follower.watch(foreign.job_id, reader)
    foreign.add(count=2)
    await wait_until(lambda: reader.seen == foreign.ids, "the events")
    plain.delete(foreign.key)
    await wait_until(lambda: "gap" in reader.seen, "the gap")
    before, foreign.ids = foreign.ids, []
    foreign.add("error")
    await wait_until(lambda: reader.ended, "the end")
    assert reader.seen == [*before, "gap", *foreign.ids]


@clause("J-15")
async def test_j15_a_finished_job_without_its_terminal_event_ends_too(
    follower: Follower, foreign: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A foreign worker died after the hash and before the event: the stream would never end."""
    monkeypatch.setattr("jobwire.systems.jobs.follow._GRACE_S", 0.05)
    foreign.add()
    reader = Collector()
    follower.watch(foreign.job_id, reader, finished=True)
    await wait_until(lambda: reader.ended, "the end")
    assert reader.seen == [*foreign.ids, "gap"]


@clause("J-13")
async def test_j13_waiting_for_an_end_reads_only_new_events(
    valkey: LocalValkey, proxy: Proxy, foreign: Foreign
) -> None:
    follower = Follower(StreamsKeys())
    foreign.add(count=500)
    async with follower.running(proxy.url(valkey.url), "tests"), asyncio.TaskGroup() as group:
        waiting = group.create_task(follower.until_ended(foreign.job_id, 60))
        await proxy.until_seen("XRANGE")
        assert not waiting.done()
        proxy.forget_seen()
        foreign.add("done")
        await waiting
        assert len(proxy.received) < 1000
        await follower.until_ended(foreign.job_id, 60)
        missing = group.create_task(follower.until_ended(JobId("missing"), 60))
        await wait_until(missing.done, "a job that does not exist")


@clause("J-13")
async def test_j13_waiters_are_released_when_the_program_stops(
    follower: Follower, foreign: Foreign
) -> None:
    foreign.add()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(follower.until_ended(foreign.job_id, 600))
        await wait_until(lambda: follower.followed, "the watch")
        follower.release_waiters()
        await waiting


@clause("J-15")
async def test_j15_malformed_foreign_data_is_sent_as_text() -> None:
    event = StreamEvent("7-1", ["data", "{nonsense", "type", "a\udcffb"])
    assert json.loads(event.body) == {
        "type": "a\N{REPLACEMENT CHARACTER}b",
        "ts": 7,
        "step": "",
        "data": "{nonsense",
    }
    assert StreamEvent("7-1", ["type", "log", "data", ""]).data == b"null"
    # Our client has no number for it.
    assert json.loads(StreamEvent("7-1", ["data", '{"a": 1e400}']).data) == '{"a": 1e400}'
    assert StreamEvent("7-1", ["type", "log", "data", "[" * 5000]).data.startswith(b'"[[')
    assert StreamEvent("7-1", ["type", "log", "ts", "soon"]).body.count(b'"ts":7') == 1


@pytest.mark.parametrize("text", ["", "-", "1-", "-1", "1-2-3", "x", "1.5", "٣-1", "1-" + "9" * 20])
def test_j15_an_invalid_id_has_no_position(text: str) -> None:
    assert read_position(text) is None


def test_j15_event_ids_are_ordered_as_numbers() -> None:
    one, two = read_position("9-10"), read_position("10-9")
    assert one is not None
    assert two is not None
    assert START < one < two
    assert read_position("7") == Position(7, 0)
    events = [StreamEvent("9-10", ["type", "log"]), StreamEvent("10-9", ["type", "done"])]
    assert following(one, events, whole=True).events == events[1:]
    assert following(two, events, whole=True).ended
    assert following(Position(9, 11), events, whole=True).has_gap
    assert not following(Position(11, 0), events, whole=False).has_gap


@clause("J-17")
async def test_j17_the_cost_of_a_new_subscription_does_not_depend_on_existing_ones(
    follower: Follower, foreign: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: every new subscription iterated over all others of the job: 5,000 took 15 s of
    CPU."""
    sent = 0
    feed = EventSubscription[StreamEvent].feed

    def counted(
        watch: EventSubscription[StreamEvent], events: Sequence[StreamEvent], *, whole: bool
    ) -> Feeding:
        nonlocal sent
        sent += 1
        return feed(watch, events, whole=whole)

    monkeypatch.setattr(EventSubscription, "feed", counted)
    foreign.add(count=3)
    readers = [Collector() for _ in range(200)]
    for reader in readers:
        follower.watch(foreign.job_id, reader)
        await wait_until(lambda reader=reader: reader.seen == foreign.ids, "its events")
    assert sent <= 2 * len(readers)
    foreign.add(count=1)
    await wait_until(lambda: all(each.seen == foreign.ids for each in readers), "the next event")
    foreign.add("done")
    await wait_until(lambda: all(each.ended for each in readers), "the end")
    assert follower.followed == 0


@clause("J-17")
async def test_j17_new_subscriptions_do_not_delay_events_of_others(
    follower: Follower, foreign: Foreign
) -> None:
    """Regression: each read began at the position of the newest reader, so no reader got beyond the
    first entries."""
    foreign.add(count=450)
    level, first = Collector(), Collector()
    follower.watch(foreign.job_id, level)
    await wait_until(lambda: level.seen == foreign.ids, "all events")
    follower.watch(foreign.job_id, first)
    arrivals = 0
    while len(first.seen) < 450 and arrivals < 2_000:
        follower.watch(foreign.job_id, Collector())
        arrivals += 1
        if arrivals == 1:
            foreign.add(count=1)
        await asyncio.sleep(0.001)
    assert arrivals < 2_000
    await wait_until(lambda: first.seen == level.seen == foreign.ids, "the event since then")


@clause("J-15", "J-17")
@pytest.mark.parametrize("count", [99, 100, 101, 200])
async def test_j15_a_finished_job_without_its_terminal_event_ends(
    follower: Follower, foreign: Foreign, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobwire.systems.jobs.follow._GRACE_S", 0.05)
    foreign.add(count=count)
    reader = Collector()
    follower.watch(foreign.job_id, reader, finished=True)
    await wait_until(lambda: reader.ended, "the end")
    assert reader.seen == [*foreign.ids, "gap"]
