"""O-2, B-12: queues by the clients and by the commands, and `jobwire look`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from jobwire import AsyncClient, Client
from jobwire.cli.main import main
from jobwire.client import ApiError, Invalid, NoSuchJob, NotFound, TimedOut
from jobwire.local import LocalValkey
from jobwire.systems.queues.options import BullJobOptions
from jobwire.systems.queues.queue import QueueProducer
from jobwire.valkey import Connection
from tests.interop.bullmq_state import dump
from tests.support import clause, wait_until_sync
from tests.support.servers import plain_client
from tests.systems.queues.served import SERVED, ServedQueues, worker_connected


@pytest.fixture(scope="module")
def served_queues(valkey: LocalValkey) -> Iterator[ServedQueues]:
    with ServedQueues(valkey.url, worker=True) as running:
        worker_connected(valkey)
        yield running


@pytest.fixture
def served(
    served_queues: ServedQueues, valkey: LocalValkey, monkeypatch: pytest.MonkeyPatch
) -> ServedQueues:
    assert valkey.alive
    monkeypatch.setenv("JOBWIRE_URL", served_queues.url)
    return served_queues


@clause("B-12")
def test_b12_the_client_works_with_a_queue(served: ServedQueues) -> None:
    with Client(served.url) as client:
        queue = client.queue(SERVED)
        added = queue.add("steps", {"n": 1}, {"jobId": "mine"})
        assert (added.id, added.outcome) == ("mine", "added")
        job = queue.wait("mine", 30)
        assert (job.state, job.returnvalue, job.progress) == ("completed", "done", 50)
        assert [event.event for event in queue.events("mine")][-1] == "completed"
        assert queue.logs("mine").lines == ["half of it"]
        assert queue.retry("mine").id == "mine"
        queue.wait("mine", 30)
        assert queue.status().failed.total == 0
        assert SERVED in [each.name for each in client.bullmq_queues()]

        idle = client.queue("idle")
        ids = [each.id for each in idle.add_many([{"name": "a"}, {"name": "b"}])]
        assert [job.id for job in idle.jobs().jobs] == ids
        delayed = idle.add("a", None, {"delay": 60_000})
        assert idle.promote(delayed.id).state == "waiting"
        assert idle.pause() is True
        assert idle.status().paused is True
        assert idle.resume() is False
        assert idle.cancel(ids[0]).outcome == "canceled"
        idle.delete(ids[1])
        idle.add("a", None, {"delay": 60_000})
        assert idle.promote_all() == 1
        assert idle.drain() == 2
        assert idle.retry_all() == idle.clean() == 0
        with pytest.raises(NoSuchJob):
            idle.job("nope")
        with pytest.raises(NotFound):
            client.queue("nope").status()
        with pytest.raises(Invalid):
            idle.add("a", float("nan"))
        with pytest.raises(ApiError) as refused:
            idle.add("a", None, {"priority": -1})
        assert refused.value.code == "bad_job"
        hold = queue.add("hold")
        with pytest.raises(TimedOut):
            queue.wait(hold.id, 0.1)
        wait_until_sync(lambda: queue.job(hold.id).state == "active")
        queue.delete(hold.id)
        assert queue.wait(hold.id, 30).failed_reason == "canceled"


@clause("B-12")
async def test_b12_the_async_client_follows_a_queue(served: ServedQueues) -> None:
    async with AsyncClient(served.url) as client:
        queue = client.queue("idle")
        first = await queue.add("a")
        page = await queue.jobs()
        assert [job.id for job in page.jobs] == [first.id]
        events = queue.events(after="0-1")
        seen = [await anext(events) for _ in range(3)]
        assert [event.event for event in seen] == ["gap", "added", "waiting"]
        await queue.pause()
        assert (await anext(events)).event == "paused"
        await events.aclose()
        job = client.queue(SERVED)
        done = await job.add("echo", {"x": 1})
        assert [event.event async for event in job.events(done.id)][-1] == "completed"
        assert (await job.wait(done.id, 30)).returnvalue == {"x": 1}


FLOW: dict[str, Any] = {
    "name": "join",
    "opts": {"jobId": "root"},
    "children": [{"name": "cut", "queueName": "clips", "data": {"n": 1}, "opts": {"jobId": "a"}}],
}


@clause("B-12")
def test_b12_the_client_has_flows_schedulers_and_obliterate(served: ServedQueues) -> None:
    with Client(served.url) as client:
        queue = client.queue("idle")
        added = queue.add_flow(FLOW)
        assert (added.queue, added.id) == ("idle", "root")
        assert [(child.queue, child.id) for child in added.children] == [("clips", "a")]
        shown = queue.flow("root", depth=1, width=5)
        assert shown.parent is None
        assert (shown.job.state, shown.job.counts.pending) == ("waiting-children", 1)
        assert [child.name for child in shown.job.children] == ["cut"]
        below = client.queue("clips").flow("a")
        assert below.parent is not None
        assert below.parent.id == "root"
        assert client.queue("clips").job("a").data == {"n": 1}
        with pytest.raises(NoSuchJob):
            queue.flow("nope")
        with pytest.raises(Invalid):
            queue.add_flow({"name": "a", "children": [{"name": "b", "data": float("nan")}]})
        made = queue.set_scheduler("s", {"pattern": "0 3 1 1 *"}, "report", {"n": 1})
        assert made.job_id == f"repeat:s:{made.next}"
        (scheduler,) = queue.schedulers(first=0, limit=10).schedulers
        assert (scheduler.name, scheduler.next, scheduler.data) == ("report", made.next, {"n": 1})
        queue.remove_scheduler("s")
        with pytest.raises(NotFound):
            queue.remove_scheduler("s")
        assert client.queue("clips").obliterate() == 1
        with pytest.raises(NotFound):
            client.queue("never-made").obliterate(force=True)


@clause("B-12")
async def test_b12_the_async_client_has_flows_schedulers_and_obliterate(
    served: ServedQueues,
) -> None:
    async with AsyncClient(served.url) as client:
        queue = client.queue("idle")
        assert (await queue.add_flow(FLOW)).id == "root"
        assert (await queue.flow("root")).job.counts.pending == 1
        made = await queue.set_scheduler("s", {"every": 60_000}, opts={"attempts": 2})
        (scheduler,) = (await queue.schedulers()).schedulers
        assert (scheduler.id, scheduler.name, scheduler.next) == ("s", "s", made.next)
        await queue.remove_scheduler("s")
        assert (await queue.schedulers()).total == 0
        # The scheduler's first job waits; the flow's root waits for its child and stays.
        assert await queue.obliterate() == 1


# Commands


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[Any]:
    """A command; its lines as JSON."""
    assert main(arguments) == code, capsys.readouterr().err
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@clause("O-2", "B-12")
def test_o2_queue_commands(served: ServedQueues, capsys: pytest.CaptureFixture[str]) -> None:
    (added,) = run(capsys, "queue", "add", SERVED, "echo", '{"n": 1}', "--opts", '{"jobId": "j"}')
    assert added == {"id": "j", "outcome": "added"}
    watched = run(capsys, "queue", "watch", SERVED, "j")
    assert watched[-1]["event"] == "completed"
    (job,) = run(capsys, "queue", "job", SERVED, "j")
    assert (job["state"], job["returnvalue"]) == ("completed", {"n": 1})
    assert [
        each["id"] for each in run(capsys, "queue", "jobs", SERVED, "--state", "completed")
    ] == ["j"]
    failed = served.add(SERVED, "fail")
    watched = run(capsys, "queue", "watch", SERVED, failed, code=1)
    assert "failed" in [each["event"] for each in watched]
    assert run(capsys, "queue", "retry", SERVED, failed)[0]["id"] == failed
    served.queue_job(SERVED, failed, wait_s=30)
    assert run(capsys, "queue", "retry", SERVED, "--all") == [{"queue": SERVED, "count": 1}]

    run(capsys, "queue", "add", "idle", "a", "--opts", '{"delay": 60000, "jobId": "d"}')
    (status,) = run(capsys, "queue", "show", "idle")
    assert status["counts"]["delayed"] == 1
    assert run(capsys, "queue", "promote", "idle", "d") == [{"id": "d", "state": "waiting"}]
    assert run(capsys, "queue", "pause", "idle", "--wire", "bullmq")[0]["paused"] is True
    assert run(capsys, "queue", "resume", "idle", "--wire", "bullmq")[0]["paused"] is False
    run(capsys, "queue", "drain", "idle", code=2)
    assert run(capsys, "queue", "drain", "idle", "--yes") == [{"queue": "idle", "count": 1}]
    clean = ("queue", "clean", SERVED, "--state", "completed", "--yes")
    assert run(capsys, *clean) == [{"queue": SERVED, "count": 1}]
    run(capsys, "queue", "ls", "--wire", "bullmq")
    run(capsys, "queue", "ls")


@clause("O-2", "B-19")
def test_o2_faults_of_queue_commands(
    served: ServedQueues, capsys: pytest.CaptureFixture[str]
) -> None:
    served.add("idle")
    faults = {
        ("queue", "show", "nope"): 4,
        ("queue", "job", "idle", "nope"): 4,
        ("queue", "retry", "idle", "nope"): 4,
        ("queue", "retry", "idle", "1"): 5,
        ("queue", "retry", "idle"): 2,
        ("queue", "add", "idle", "a", "{"): 2,
        ("queue", "add", "idle", "a", "{}", "--opts", '{"jobId": "12"}'): 5,
        ("queue", "jobs", "idle", "--state", "nope"): 5,
        ("queue", "clean", "idle", "--state", "nope", "--yes"): 5,
        ("queue", "purge", "idle", "--wire", "bullmq", "--yes"): 2,
    }
    for arguments, code in faults.items():
        assert main(arguments) == code, arguments
        lines = capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1, (arguments, lines)


READS = frozenset(
    {
        *{"scan", "llen", "zcard", "hexists", "lindex", "zrange", "hmget", "lrange", "exists"},
        *{
            "hget",
            "hgetall",
            "hstrlen",
            "zrevrange",
            "client",
            "hello",
            "ping",
            "evalsha",
            "eval",
            "script",
        },
        *{
            "type",
            "keys",
            "pttl",
            "xrange",
            "info",
            "command",
            "config",
            "select",
            "auth",
            "lpos",
            "zscore",
            "get",
            "role",
        },
    }
)


async def _add_jobs(url: str) -> None:
    async with Connection.open(url) as connection:
        queue = QueueProducer(connection, "team")
        await queue.submit("render")
        await queue.submit("render", "{}", BullJobOptions(delay_ms=60_000))


@clause("O-2", "B-12")
def test_o2_look_writes_nothing(
    own_valkey: LocalValkey, capsys: pytest.CaptureFixture[str]
) -> None:
    """MONITOR shows every command, also those of scripts."""
    asyncio.run(_add_jobs(own_valkey.url))
    url, seen = own_valkey.url, list[str]()
    with plain_client(own_valkey) as plain, plain.monitor() as monitor:
        before = dump(plain)
        (queue,) = run(capsys, "look", url)
        assert queue["counts"]["delayed"] == queue["counts"]["waiting"] == 1
        jobs = run(capsys, "look", url, "team")
        assert [job["state"] for job in jobs] == ["waiting", "delayed"]
        run(capsys, "look", url, "team", "--state", "failed")
        plain.call("ECHO", "the end")
        while not seen or seen[-1] != "ECHO the end":
            command: dict[str, Any] = monitor.next_command() or {}
            seen.append(command["command"])
        names = {each.split()[0].lower() for each in seen[:-1]}
        assert names <= READS, names - READS
        assert {"evalsha", "llen", "zcard"} <= names
        assert dump(plain) == before


@clause("O-2")
def test_o2_faults_of_look(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["look", "http://localhost"]) == 2
    assert main(["look", "redis://127.0.0.1:1"]) == 3
    assert main(["look", "redis://127.0.0.1:1", "q", "--state", "nope"]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 3
