"""O-13 of queues: metrics and doctor checks after known jobs; schema; the known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from prometheus_client.core import Metric

from jobwire.local import LocalValkey
from jobwire.programs.schema import definition
from jobwire.settings import load
from jobwire.systems.queues.add_batcher import Added
from jobwire.systems.queues.announcement import Announcement
from jobwire.systems.queues.consumer import BullConsumer
from jobwire.systems.queues.contract import BullField, BullState, EventName
from jobwire.systems.queues.doctor import examine
from jobwire.systems.queues.known_queues import MAX_FOUND, KnownQueues
from jobwire.systems.queues.metrics import BullMetrics, measure
from jobwire.systems.queues.queue import NewBullJob, QueueProducer
from jobwire.systems.queues.schema import wire_schema
from jobwire.systems.queues.settings import BullSettings
from jobwire.valkey import Config, Connection
from tests.support import Plain, clause, wait_until
from tests.systems.queues.conftest import QUEUE, Site


def samples(families: list[Metric]) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def short_lived(connection: Connection) -> BullConsumer:
    """A worker whose locks expire at once."""
    settings = BullSettings(lock_ms=1)
    return BullConsumer(connection, QUEUE, settings, name="w2", worker_id="worker-2")


@clause("O-13")
async def test_o13_the_metrics_of_a_queue_count_its_jobs(
    connection: Connection, valkey: LocalValkey, plain: Plain
) -> None:
    site = Site(connection, plain, metrics_points=60)
    done = await site.add()
    await site.complete()
    stalled = await site.add()
    await short_lived(connection).take("token-of-another")
    held = await site.add()
    await site.take()
    await site.add()
    site.later(5_000)
    await site.add()
    await site.add(priority=3)
    await site.add(delay_ms=60_000)
    await site.queue.pause()
    await wait_until(lambda: not plain.exists(f"bull:{QUEUE}:{stalled}:lock"))
    assert len({done, stalled, held}) == 3

    (figures,) = (await measure(connection, "bull", [QUEUE], lambda: site.now_ms)).values()
    assert figures.jobs == {
        BullState.WAITING: 2,
        BullState.PRIORITIZED: 1,
        BullState.DELAYED: 1,
        BullState.ACTIVE: 2,
        BullState.WAITING_CHILDREN: 0,
        BullState.COMPLETED: 1,
        BullState.FAILED: 0,
    }
    assert (figures.next_age_s, figures.stalled, figures.paused) == (5, 1, True)
    assert figures.ended == {BullState.COMPLETED: 1}

    announced = Announcement(Config.from_url(valkey.url), QUEUE, "bull", "w1")
    await announced.open()
    known = KnownQueues(connection, "bull", [QUEUE, "empty"])
    found = samples(list(await BullMetrics(connection, "bull", known).read()))
    await announced.close()
    assert found["jobwire_queue_jobs", QUEUE, "waiting"] == 2
    assert found["jobwire_queue_jobs", "empty", "waiting"] == 0
    assert found["jobwire_queue_stalled", QUEUE] == 1
    assert found["jobwire_queue_paused", QUEUE] == 1
    assert found["jobwire_queue_ended_total", QUEUE, "completed"] == 1
    assert ("jobwire_queue_ended_total", QUEUE, "failed") not in found
    assert found["jobwire_queue_workers", QUEUE] == 1
    assert found["jobwire_queue_workers", "empty"] == 0


@clause("O-13")
async def test_o13_a_delayed_job_is_as_old_as_its_due_time(
    connection: Connection, site: Site
) -> None:
    await site.add(delay_ms=60_000)
    site.later(61_000)
    await site.add()
    await site.take()  # promotes the first one
    found = await measure(connection, "bull", [QUEUE], lambda: site.now_ms)
    assert found[QUEUE].next_age_s == 1


@clause("B-19")
async def test_b19_metrics_of_a_queue_with_corrupt_keys(
    connection: Connection, plain: Plain
) -> None:
    plain.call("RPUSH", f"bull:{QUEUE}:wait", "ghost")
    plain.hset(f"bull:{QUEUE}:meta", "x", "y")
    plain.hset(f"bull:{QUEUE}:metrics:completed", "count", "many")
    (figures,) = (await measure(connection, "bull", [QUEUE])).values()
    assert (figures.next_age_s, figures.ended) == (None, {})
    plain.hset(f"bull:{QUEUE}:ghost", mapping={"timestamp": "soon", "opts": "[1"})
    (figures,) = (await measure(connection, "bull", [QUEUE])).values()
    assert figures.next_age_s is None


# ── known ────────────────────────────────────────────────────────────────────────────────────


async def scanned(known: KnownQueues) -> list[str]:
    while (await known.scan()).more:
        pass
    return list(known.names)


@clause("B-18")
async def test_b18_queues_are_configured_or_found_by_scan_and_removed(
    connection: Connection, plain: Plain
) -> None:
    for name in ("films", "{tagged}", "a*b"):
        await QueueProducer(connection, name).submit("task")
    other = QueueProducer(connection, "others", BullSettings(prefix="b[u]ll"))
    assert isinstance(await other.submit("task"), Added)
    plain.hset("bull:films:job:meta", "not", "a queue")
    plain.set("bull:text:meta", "of another type")
    known = KnownQueues(connection, "bull", ["named"])
    assert await scanned(known) == ["named", "a*b", "films", "{tagged}"]
    assert await scanned(KnownQueues(connection, "b[u]ll")) == ["others"]
    plain.delete("bull:films:meta", *plain.keys("b\\[u\\]ll:*"))
    assert await scanned(known) == ["named", "a*b", "{tagged}"]


@clause("B-18")
async def test_b18_a_queue_that_was_made_is_known_before_the_scan(
    connection: Connection, plain: Plain
) -> None:
    pipeline = plain.pipeline(transaction=False)
    for number in range(11_000):
        pipeline.set(f"other:{number}", "", ex=60)
    pipeline.execute()
    known = KnownQueues(connection, "bull")
    assert (await known.scan()).more, "a pass is under way"
    known.add("films")
    assert list(known.names) == ["films"]
    assert await scanned(known) == ["films"], "the pass may have gone by its key"
    assert await scanned(known) == [], "without a key it is forgotten by the next one"
    for number in range(MAX_FOUND + 10):
        known.add(f"q{number}")
    assert len(known.names) == MAX_FOUND


@clause("B-18")
async def test_b18_a_scan_is_bounded(connection: Connection, plain: Plain) -> None:
    pipeline = plain.pipeline(transaction=False)
    for number in range(MAX_FOUND + 500):
        pipeline.hset(f"bull:q{number}:meta", "x", "1")
    for number in range(10_000):
        pipeline.set(f"other:{number}", "", ex=60)
    pipeline.execute()
    known = KnownQueues(connection, "bull", ["named"])
    assert (await known.scan()).more, "one step does not scan the whole server"
    assert len(await scanned(known)) == MAX_FOUND + 1


# ── doctor ───────────────────────────────────────────────────────────────────────────────────────


async def findings(folder: Path, **variables: str) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    async for finding in examine(load(environ={"JOBWIRE_DATA_DIR": str(folder), **variables})):
        found.setdefault(finding.check, []).append((finding.verdict, finding.found))
    return found


@clause("O-13", "O-7")
async def test_o13_doctor_checks_the_server_the_workers_and_stalled_jobs(
    connection: Connection, valkey: LocalValkey, plain: Plain, tmp_path: Path
) -> None:
    queue = QueueProducer(connection, QUEUE)
    variables = {"VALKEY_URL": valkey.url}
    assert await findings(tmp_path, **variables) == {"queues": [("ok", "none yet")]}
    await queue.submit_many([NewBullJob("task")] * 3)
    await short_lived(connection).take("token-of-another")
    await wait_until(lambda: not plain.exists(f"bull:{QUEUE}:1:lock"))
    found = await findings(tmp_path, JOBWIRE_QUEUES_URL=valkey.url)
    assert found["queues server"][0][0] == "ok"
    assert found["queues server eviction"] == [("ok", "never evicts")]
    assert found["queues"] == [("ok", "1 queue with 3 jobs")]
    assert found["queue workers"] == [
        ("note", f"{QUEUE}: 2 jobs waiting, and no worker is announced")
    ]
    assert found["stalled jobs"] == [("note", f"{QUEUE}: 1 active job without a lock")]
    await queue.pause()
    assert (await findings(tmp_path, **variables))["paused queue"] == [
        ("note", f"{QUEUE}: 2 jobs waiting")
    ]
    bad = await findings(tmp_path, JOBWIRE_QUEUES_URL="http://x")
    assert bad["queues server"][0][0] == "fault"
    away = await findings(tmp_path, JOBWIRE_QUEUES_URL="valkey://127.0.0.1:1/0")
    assert away["queues server"][0][0] == "unreachable"


# ── schema ───────────────────────────────────────────────────────────────────────────────────────


@clause("O-13")
async def test_o13_jobs_and_events_fit_the_schema(site: Site) -> None:
    job_id = await site.add(data={"n": 1}, attempts=2)
    job, token = await site.take()
    await site.consumer.report(job.id, token, "progress", "50", "half")
    await site.consumer.complete(job, token, '{"ok":true}')
    for name in wire_schema()["$defs"]:
        jsonschema.Draft202012Validator.check_schema(_definition(name))
    _fits("queue_job", site.hash(job_id))
    events = site.events()
    assert {event["event"] for event in events} >= {"added", "active", "progress", "completed"}
    for event in events:
        _fits("queue_event", event)
    with pytest.raises(jsonschema.ValidationError):
        _fits("queue_job", {**site.hash(job_id), "timestamp": "soon"})
    with pytest.raises(jsonschema.ValidationError):
        _fits("queue_event", {"event": "completed"})


def _definition(name: str) -> Any:
    return definition(name)


def _fits(name: str, value: object) -> None:
    jsonschema.Draft202012Validator(_definition(name)).validate(value)


@clause("O-13")
def test_o13_every_field_and_event_is_in_the_schema() -> None:
    written = json.dumps(wire_schema())
    assert [str(word) for word in (*BullField, *EventName) if f'"{word}"' not in written] == []
