"""A-8: the clean view, from the fold to the readers of a follower."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from typing import cast

import pytest
import pytest_asyncio

from jobwire.job.messages import JobId
from jobwire.local import LocalValkey
from jobwire.systems.jobs.clean_view import CleanReader, CleanView, is_report
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.events import StreamEvent
from jobwire.systems.jobs.follow import Follower
from jobwire.valkey.stream_ids import START, read_position
from tests.support import Fresh, Plain, Proxy, clause, wait_until

HISTORIES = int(os.environ.get("CLEAN_HISTORIES", "300"))
"""How many random histories; thousands take minutes."""
ENDS = ("lost", "released", "retried", "suspended", "not suspended")
STEPS = {"released": "worker.release", "not suspended": "worker.suspend"}
EVENTS_OF_ENDS = {"released": "queued", "retried": "retrying", "suspended": "suspended"}


def entry(number: int, kind: str, step: str = "", data: str = "{}") -> StreamEvent:
    return StreamEvent(f"{number}-0", ["type", kind, "ts", str(number), "step", step, "data", data])


def history(dice: random.Random) -> list[StreamEvent]:
    """The events of a job with some runs that end in every way."""
    kinds: list[tuple[str, str]] = [("queued", "gateway.enqueue")]
    for _ in range(dice.randint(1, 6)):
        kinds.append(("running", ""))
        if dice.random() < 0.15:
            kinds.append(("continued", ""))
        reports = dice.choices(("token", "token", "log", "step_done"), k=dice.randint(0, 5))
        kinds.extend((kind, "") for kind in reports)
        end = dice.choice(ENDS)
        if end != "lost":
            kinds.append((EVENTS_OF_ENDS.get(end, "queued"), STEPS.get(end, "")))
    kinds.append((dice.choice(("done", "error")), ""))
    return [entry(number, *each) for number, each in enumerate(kinds, 1)]


def is_record(event: StreamEvent) -> bool:
    return event.kind in ("step_done", "suspended") or event.step == "worker.suspend"


def surviving(events: list[StreamEvent]) -> list[str]:
    """What the clean view has in the end, found without a fold."""
    dropped: set[str] = set()
    for at, event in enumerate(events):
        is_kept = event.kind == "queued" and event.step == "worker.suspend"
        if not (
            is_report(event.kind) or is_kept or event.kind in ("step_done", "suspended", "done")
        ):
            continue
        bases = [
            earlier
            for earlier in range(at)
            if events[earlier].kind in ("step_done", "suspended")
            or events[earlier].step == "worker.suspend"
        ]
        base = max(bases, default=-1)
        shown = [n for n in range(base + 1, at) if is_report(events[n].kind)]
        later = [each.kind for each in events[shown[-1] + 1 : at]] if shown else []
        if "running" in later and event.kind != "continued":
            dropped.update(events[n].id for n in shown)
    return [event.id for event in events if event.id not in dropped]


class Shown:
    """A reader as a client keeps it: over connections, with what is taken back removed."""

    closed = False

    def __init__(self, capacity: int = 10**9) -> None:
        self.events: list[StreamEvent] = []
        self.rollbacks: list[str] = []
        self.capacity = capacity
        self.ended = False
        self.last = START

    @property
    def ids(self) -> list[str]:
        return [event.id for event in self.events]

    def _takes(self) -> bool:
        self.capacity -= 1
        return self.capacity >= 0

    def push(self, event: StreamEvent) -> bool:
        if not self._takes():
            return False
        assert event.position > self.last, "each event once and in order"
        self.last = event.position
        self.events.append(event)
        return True

    def send_rollback(self, to: str) -> bool:
        if not self._takes():
            return False
        self.rollbacks.append(to)
        back_to = read_position(to)
        assert back_to is not None
        self.events = [
            event for event in self.events if event.position <= back_to or not is_report(event.kind)
        ]
        return True

    def send_gap(self) -> bool:
        return self._takes()

    def end(self) -> None:
        self.ended = True

    async def wait_writable(self) -> None:
        while self.capacity <= 0 and not self.closed:
            await asyncio.sleep(0)


class Connection:
    """Feeds a reader as the follower does, from the stream as it is at the moment."""

    def __init__(self, stream: list[StreamEvent], view: CleanView, shown: Shown) -> None:
        self.at = shown.last
        self._stream = stream

        async def scan(view: CleanView, lacks: Callable[[], bool]) -> None:
            for event in stream if lacks() else ():
                view.add(view.known, event)

        before = [event for event in stream if event.position <= self.at]
        starts = [event.position.ms for event in stream if event.kind == "running"]
        self.reader = CleanReader(
            *(shown, view, scan, self.at),
            started_ms=max(starts, default=0),
            is_behind=bool(before) and before[-1].kind in ("queued", "running", "retrying"),
        )

    def feed(self) -> bool:
        """One event; False if there is none."""
        for event in self._stream:
            if event.position > self.at:
                if self.reader.push(event):
                    self.at = event.position
                else:
                    wait(self.reader)
                return True
        return False


def wait(reader: CleanReader) -> None:
    """Nothing here waits for anything."""
    waiting = reader.wait_writable()
    with pytest.raises(StopIteration):
        waiting.send(None)


@clause("A-8")
@pytest.mark.parametrize("shares", [False, True], ids=["alone", "together"])
def test_a08_every_reader_ends_with_what_survives(shares: bool) -> None:
    """Random histories; readers come at random points, reconnect, and are as slow as they like."""
    for seed in range(HISTORIES):
        dice = random.Random(seed)
        events, stream, view = history(dice), list[StreamEvent](), CleanView()
        readers = [Shown() for _ in range(4)]
        open_: dict[Shown, Connection] = {}
        while len(stream) < len(events) or open_.keys() != set(readers):
            if len(stream) < len(events):
                stream.append(events[len(stream)])
            for shown in readers:
                if shown in open_ and dice.random() < 0.1:
                    del open_[shown]  # it reconnects
                if shown not in open_ and dice.random() < 0.5:
                    open_[shown] = Connection(stream, view if shares else CleanView(), shown)
                if shown in open_:
                    for _ in range(dice.randint(0, 3)):
                        open_[shown].feed()
        for shown, connection in open_.items():
            while connection.feed():
                pass
            assert shown.ids == surviving(events), (seed, [each.kind for each in events])


@clause("A-8")
def test_a08_who_comes_later_never_sees_what_was_taken_back() -> None:
    for seed in range(HISTORIES):
        stream, shown = history(random.Random(seed)), Shown()
        connection = Connection(stream, CleanView(), shown)
        while connection.feed():
            pass
        assert (shown.ids, shown.rollbacks) == (surviving(stream), []), seed


def kinds_after(*kinds: str) -> tuple[list[str], list[str]]:
    """What a reader of these events has, and was told to take back; `kind@step` names a step, and
    what follows `kind ` is the data."""
    shown, view = Shown(), CleanView()
    stream: list[StreamEvent] = []
    connection = Connection(stream, view, shown)
    for number, name in enumerate(kinds, 1):
        name, _, data = name.partition(" ")
        kind, _, step = name.partition("@")
        stream.append(entry(number, kind, step, data or "{}"))
        while connection.feed():
            pass
    return [event.kind for event in shown.events], shown.rollbacks


@clause("A-8", "J-4")
def test_a08_the_event_running_separates_runs() -> None:
    lost = kinds_after("queued", "running", "token", "running", "log", "done")
    assert lost == (["queued", "running", "running", "log", "done"], ["0-0"])
    assert kinds_after("running", "token", "running")[0] == ["running", "token", "running"]
    assert kinds_after("running", "token", "queued@worker.release", "running", "done")[1] == ["0-0"]
    assert kinds_after("running", "token", "retrying", "running", "token")[1] == ["0-0"]
    assert kinds_after("running", "token", "error")[1] == []
    assert kinds_after("running", "token", "running", "error")[1] == []


@clause("A-8", "D-1", "D-9")
def test_a08_what_lies_before_a_record_stays() -> None:
    stays = kinds_after("running", "token", "step_done", "log", "running", "log", "done")
    assert stays == (["running", "token", "step_done", "running", "log", "done"], ["3-0"])
    for end in ("suspended", "queued@worker.suspend", "queued@worker.restart"):
        kept, taken = kinds_after("running", "token", end, "running", "token")
        assert (kept.count("token"), taken) == (2, []), end


@clause("A-8", "D-4a")
def test_a08_a_failed_step_is_not_gone_on_after() -> None:
    """The next attempt calls it again, and reports what was before it again."""
    failed = 'step_done {"name":"a","failed":true}'
    kept, taken = kinds_after("running", "log", failed, "retrying", "running", "log", "done")
    assert (kept.count("log"), taken) == (1, ["0-0"])
    kept, taken = kinds_after("running", "log", "running", failed, "log", "done")
    assert (kept.count("log"), taken) == (1, ["0-0"])


@clause("A-8")
def test_a08_a_run_that_continues_takes_nothing_back() -> None:
    kinds = ("running", "token", "running", "continued", "token")
    assert kinds_after(*kinds, "done") == ([*kinds, "done"], [])
    anew = kinds_after(*kinds, "running", "token", "done")
    assert anew == (["running", "running", "running", "token", "done"], ["0-0"])


# ── over a follower ──────────────────────────────────────────────────────────────────────────────


class Stream:
    """The events of a job, written by a program that only uses XADD."""

    def __init__(self, plain: Plain, job_id: JobId) -> None:
        self.plain, self.job_id = plain, job_id
        self.key = f"job:{job_id}:events"
        self.events: list[StreamEvent] = []
        plain.hset(f"job:{job_id}", mapping={"job_id": job_id, "status": "running"})
        plain.expire(f"job:{job_id}", 600)

    def add(self, *kinds: str) -> None:
        for kind in kinds:
            fields = ["type", kind, "ts", "1", "step", "", "data", "{}"]
            added = cast(str, self.plain.call("XADD", self.key, "*", *fields))
            self.events.append(StreamEvent(added, fields))
        self.plain.expire(self.key, 600)


@pytest.fixture
def stream(plain: Plain, fresh: Fresh) -> Stream:
    return Stream(plain, JobId(fresh("job")))


@pytest_asyncio.fixture
async def follower(valkey: LocalValkey) -> AsyncIterator[Follower]:
    follower = Follower(StreamsKeys())
    async with follower.running(valkey.url, "tests"):
        yield follower
    assert follower.followed == 0


@clause("A-8", "J-17")
async def test_a08_many_readers_of_a_job_read_its_past_once(
    valkey: LocalValkey, proxy: Proxy, stream: Stream
) -> None:
    """They resumed, so none of them knows what was before; then another run begins."""
    stream.add("queued", "running", *["token"] * 300)
    follower = Follower(StreamsKeys())
    async with follower.running(proxy.url(valkey.url), "tests"):
        readers = [Shown() for _ in range(200)]
        after = stream.events[-1].position
        for reader in readers:
            reader.last = after
            follower.watch_clean(stream.job_id, reader, after)
        stream.add("running", "token", "done")
        await wait_until(lambda: all(reader.ended for reader in readers), "the end")
    pages = proxy.seen(
        lambda command: command.name == "XRANGE" and command.words[2].startswith("(")
    )
    assert len(pages) == 2
    for reader in readers:
        assert [event.kind for event in reader.events] == ["running", "token", "done"]
        assert reader.rollbacks == ["0-0"]


@clause("A-8", "J-15", "R-8")
async def test_a08_after_a_gap_the_view_is_read_anew(follower: Follower, stream: Stream) -> None:
    reader = Shown(capacity=2)
    follower.watch_clean(stream.job_id, reader)
    stream.add("queued", "running", *["token"] * 5)
    await wait_until(lambda: reader.capacity < 0, "the reader to be full")
    stream.add("running", "token", "token")
    stream.plain.xtrim(stream.key, maxlen=4, approximate=False)
    stream.add("done")
    reader.capacity = 100
    await wait_until(lambda: reader.ended, "the end")
    assert [event.kind for event in reader.events] == [
        *("queued", "running", "running", "token", "token", "done")
    ]


@clause("A-8", "R-8")
async def test_a08_a_reader_behind_waits_until_the_server_answers(
    valkey: LocalValkey, proxy: Proxy, stream: Stream
) -> None:
    stream.add("queued", "running", "token", "token")
    follower, reader = Follower(StreamsKeys()), Shown()
    async with follower.running(proxy.url(valkey.url), "tests"):
        after = stream.events[2].position
        reader.last = after
        follower.watch_clean(stream.job_id, reader, after)
        await wait_until(lambda: len(reader.events) == 1, "the event after its place")
        with proxy.hold(
            lambda command: command.name == "XRANGE" and command.words[2] == "(0-0"
        ) as hold:
            stream.add("running", "token")
            await hold.until_reached()
            proxy.cut()
        stream.add("done")
        await wait_until(lambda: reader.ended, "the end")
    assert [event.kind for event in reader.events] == ["running", "token", "done"]
    assert reader.rollbacks == ["0-0"]
