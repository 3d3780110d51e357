"""B-25: `jobwire.BullQueue` and `SyncBullQueue`, straight on the server."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from jobwire import BullQueue, SyncBullQueue
from jobwire.client import AsyncQueue
from jobwire.job.errors import RefusedError
from jobwire.local import LocalValkey
from tests.support import clause
from tests.systems.queues.served import SERVED, ServedQueues, worker_connected


@pytest.fixture(scope="module")
def _served(valkey: LocalValkey) -> Iterator[ServedQueues]:
    with ServedQueues(valkey.url, worker=True) as running:
        worker_connected(valkey)
        yield running


@pytest.fixture
def url(_served: ServedQueues, valkey: LocalValkey) -> str:
    assert valkey.alive
    return valkey.url


def methods(kind: type) -> dict[str, list[str]]:
    return {
        name: list(inspect.signature(method).parameters)
        for name, method in vars(kind).items()
        if inspect.isfunction(method) and not name.startswith("_")
    }


@clause("B-25")
def test_b25_it_has_the_methods_of_the_clients_queue() -> None:
    ours, theirs = methods(BullQueue), methods(AsyncQueue)
    assert set(theirs) - set(ours) == {"status"}, "which describes what the gateway sees"
    for name in set(theirs) & set(ours):
        assert ours[name][: len(theirs[name])] == theirs[name], name
    assert methods(SyncBullQueue) == ours


@clause("B-25")
async def test_b25_add_wait_and_follow(url: str) -> None:
    async with BullQueue(SERVED, url) as queue:
        job = await queue.add("echo", {"n": 1}, {"attempts": 2})
        done = await queue.wait(job.id, 30)
        assert (done.state, done.returnvalue, done.opts["attempts"]) == ("completed", {"n": 1}, 2)
        failed = await queue.add("fail")
        assert (await queue.wait(failed.id, 30)).failed_reason == "no disk"
        names = [event.event async for event in queue.events(failed.id, after="0-0")]
        assert (names[0], names[-1]) == ("added", "failed")
        assert (await queue.retry(failed.id)).id == failed.id
        with pytest.raises(RefusedError, match="no such job") as refused:
            await queue.job("nope")
        assert (refused.value.code, refused.value.status) == ("job_not_found", 404)
        with pytest.raises(TimeoutError):
            await queue.wait((await queue.add("echo", None, {"delay": 60_000})).id, 0.05)


@clause("B-25", "B-21")
def test_b25_bulk_flows_schedulers_and_administration_without_a_loop(url: str) -> None:
    with SyncBullQueue("films", url) as queue:
        many = [{"name": "cut", "data": {"n": number}} for number in range(1001)]
        assert [job.id for job in queue.add_many(many)][-1] == "1001", "in two parts"
        flow = queue.add_flow(
            {"name": "join", "opts": {"jobId": "root"}, "children": [{"name": "cut"}]}
        )
        assert queue.flow("root").job.children[0].id == flow.children[0].id
        assert queue.job("root").state == "waiting-children"
        assert queue.set_scheduler("tick", {"every": 60_000}).job_id
        assert [each.id for each in queue.schedulers().schedulers] == ["tick"]
        late = queue.add("late", None, {"delay": 60_000, "deduplication": {"id": "x"}}).id
        assert queue.deduplication_owner("x") == late
        queue.change_delay(late, 120_000)
        queue.change_priority(late, 7)
        queue.update_data(late, {"n": 2})
        queue.update_progress(late, 40, "nearly")
        assert queue.add_log(late, "more") == 2
        job = queue.job(late)
        assert (job.delay, job.priority, job.data, job.progress) == (120_000, 7, {"n": 2}, 40)
        queue.set_concurrency(3)
        queue.set_rate_limit(5, 1000)
        assert queue.limits() == (3, 5, 1000)
        assert queue.free_deduplication("x") is True
        assert queue.promote(late).state == "prioritized"
        assert queue.detach(flow.children[0].id).state == "waiting"
        assert queue.job("root").state == "waiting"
        assert queue.pause() is True
        queue.delete(late)
        names = [event.event for event in queue.events(late, after="0-0")]
        assert (names[0], names[-1]) == ("added", "removed")
        assert queue.drain() > 1000
        queue.obliterate()
        assert sum(queue.counts().values()) == 0


@clause("B-25", "B-13")
@pytest.mark.parametrize(
    ("name", "data", "opts"),
    [("", {}, {}), ("x", {}, {"attempts": -1}), ("x", {}, {"debounce": 1}), ("x", {"a": 1}, {})],
)
async def test_b25_bad_jobs_are_refused(url: str, name: str, data: Any, opts: Any) -> None:
    async with BullQueue("video-generation", url) as queue:
        with pytest.raises(RefusedError):
            await queue.add(name, data, opts)
