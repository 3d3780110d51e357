"""B-8: followers of a queue get every event once and in order."""

from __future__ import annotations

import asyncio

from jobwire.local import LocalValkey
from jobwire.systems.queues.contract import BullState
from jobwire.systems.queues.events import QueueEvent
from jobwire.systems.queues.follow import FinishedJob, QueueFollower
from jobwire.valkey import Connection
from jobwire.valkey.stream_ids import START
from tests.support import clause, wait_until
from tests.systems.queues.conftest import QUEUE, Site

EVENTS = f"bull:{QUEUE}:events"


class Collector:
    """A reader that accepts nothing while its gate is closed."""

    closed = False

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.gate = asyncio.Event()
        self.reached = asyncio.Event()
        self.blocked = False

    def push(self, event: QueueEvent) -> bool:
        if not self.gate.is_set():
            return False
        self.seen.append(int(event.fields["n"]))
        self.reached.set()
        return True

    def send_gap(self) -> bool:
        raise AssertionError("no event is missing")

    def end(self) -> None:
        raise AssertionError("the stream of a queue does not end")

    async def wait_writable(self) -> None:
        self.blocked = True
        await self.gate.wait()


@clause("B-8", "B-12")
async def test_b12_a_slow_reader_misses_no_event(
    valkey: LocalValkey, connection: Connection
) -> None:
    """It catches up by separate reads. Events that arrive meanwhile go to the others, and must not
    be skipped."""
    follower = QueueFollower("bull")
    fast, slow = Collector(), Collector()
    fast.gate.set()

    async def write(*numbers: int) -> None:
        for number in numbers:
            await connection.call("XADD", EVENTS, "*", "event", "scene", "n", number)
        await wait_until(lambda: fast.seen[-1:] == [numbers[-1]])

    async with follower.running(valkey.url, "tests-follower"):
        follower.watch(QUEUE, fast, START)
        await write(1, 2, 3)
        follower.watch(QUEUE, slow, START)
        await wait_until(lambda: slow.blocked)
        await write(4, 5, 6)
        slow.gate.set()
        await wait_until(lambda: slow.seen[:3] == [1, 2, 3])
        await write(7)
        await wait_until(lambda: slow.seen[-1:] == [7])
    assert slow.seen == fast.seen == [1, 2, 3, 4, 5, 6, 7]


@clause("B-8", "B-12")
async def test_b12_an_event_before_the_first_read_of_a_queue_is_delivered(
    valkey: LocalValkey, connection: Connection
) -> None:
    """A new reader has caught up before the queue itself is read for the first time."""
    follower = QueueFollower("bull")
    async with follower.running(valkey.url, "tests-follower"):
        for number in range(10):
            reader = Collector()
            reader.gate.set()
            leave = follower.watch(QUEUE, reader, await follower.end_of(QUEUE))
            await follower.end_of(QUEUE)  # behind the reader's own read, on the same connection
            await connection.call("XADD", EVENTS, "*", "event", "scene", "n", number)
            # Not by polling: the next reader subscribes while a read of the queue waits.
            async with asyncio.timeout(30):
                await reader.reached.wait()
            assert reader.seen == [number]
            leave()


@clause("B-8")
async def test_b8_wait_until_finished(valkey: LocalValkey, site: Site) -> None:
    follower = QueueFollower("bull")
    async with follower.running(valkey.url, "tests-follower"):
        job_id = await site.add(remove_on_complete=True)
        assert await follower.wait_until_finished(site.queue, job_id, 0.01) is None
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(follower.wait_until_finished(site.queue, job_id, 30))
            await wait_until(lambda: follower.watchers == 1)
            await site.complete({"n": 1})
        assert waiting.result() == FinishedJob(BullState.COMPLETED, '{"n": 1}')
        missing = await follower.wait_until_finished(site.queue, job_id, 30)
        assert missing == "missing", "a job that was removed before the call"
        kept = await site.add()
        await site.complete("kept")
        again = await follower.wait_until_finished(site.queue, kept, 30)
        assert again == FinishedJob(BullState.COMPLETED, '"kept"')
