"""Shards that are added and removed while jobs are submitted (G-5)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from random import Random
from threading import Event
from typing import cast

import httpx
import pytest
import pytest_asyncio

from jobwire.job.errors import BackendUnavailable, RefusedError
from jobwire.job.ids import new_shard_ids, shard_of
from jobwire.job.messages import Already, JobRequest, Mismatch, SubmitAnswer, Submitted
from jobwire.local import LocalValkey
from jobwire.systems.jobs import contract
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.queue import StreamsQueue
from jobwire.systems.jobs.scripts import SCRIPTS
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.systems.jobs.shard_choice import choose
from jobwire.systems.jobs.shard_overview import ShardRow, balance
from jobwire.systems.jobs.shard_settings import TAGS, ShardList
from jobwire.systems.jobs.shard_table import ShardTable
from jobwire.systems.jobs.sharded_queue import ShardedQueue
from jobwire.systems.jobs.shards import Shard, Shards
from jobwire.valkey import Connection, NotSent
from jobwire.valkey.outbox import MAX_COMMANDS
from tests.support import Plain, clause, wait_until_sync
from tests.support.fixtures import StartProgram
from tests.support.jobs_http import problem
from tests.support.raw import Raw
from tests.support.servers import plain_client
from tests.support.shards import ShardedGateway, sharded

pytestmark = pytest.mark.xdist_group("shards")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalValkey]:
    with LocalValkey(tmp_path_factory.mktemp("adding"), admin=True) as started:
        yield started


@pytest.fixture(autouse=True)
def plain(server: LocalValkey) -> Iterator[Plain]:
    with plain_client(server, "tests-plain") as client:
        yield client
        client.flushall()


@pytest_asyncio.fixture
async def connection(server: LocalValkey) -> AsyncIterator[Connection]:
    async with Connection.open(server.url, name="tests-process") as opened:
        await opened.load_scripts(SCRIPTS.values())
        yield opened


def jobs(count: int, *closed: int, by: str = "job") -> StreamsSettings:
    return StreamsSettings(shards=ShardList(count), closed_shards=closed, shard_by=by)  # pyright: ignore[reportArgumentType] - a Literal


def router(connection: Connection, settings: StreamsSettings, table: ShardTable) -> ShardedQueue:
    found = [
        Shard(number, connection, own, StreamsQueue(connection, own))
        for number in settings.shards.numbers
        for own in [settings.of_shard(number)]
    ]
    return ShardedQueue(Shards(found), settings, table)


def process(
    connection: Connection, *tables: Sequence[int], count: int = 8, by: str = "job"
) -> ShardedQueue:
    """The queue of a process that has read these tables."""
    settings = jobs(count, by=by)
    table = ShardTable(connection, settings)
    table.tables = tuple(tuple(each) for each in tables)
    return router(connection, settings, table)


def request(key: str, body: str = "{}", tenant: str = "") -> JobRequest:
    return JobRequest("echo", body, idempotency_key=key, fingerprint=body, tenant=tenant)


def stored(plain: Plain) -> list[str]:
    """The ids of all jobs, in all shards."""
    found = cast("list[str]", plain.keys("*:job:*:events"))
    return [key.split(":")[-2] for key in found]


def job_id(answer: SubmitAnswer) -> str:
    assert isinstance(answer, Submitted | Already), answer
    return answer.job_id


OLD = ((0, 1, 2, 3),)
NEW = ((0, 1, 2, 3), tuple(range(8)))


@clause("G-5")
@pytest.mark.parametrize("seed", range(5))
async def test_g05_old_and_new_tables_give_a_key_one_job(
    connection: Connection, plain: Plain, seed: int
) -> None:
    """Fifty racing submissions, from processes that have read the new table and from others that
    have not."""
    queues = [process(connection, *OLD), process(connection, *NEW), process(connection, *NEW)]
    keys = [f"key {number}" for number in range(10)]
    racing = [(queue, key) for key in keys for queue in (*queues, *queues[:2])]
    Random(seed).shuffle(racing)
    answers = await asyncio.gather(*(queue.submit(request(key)) for queue, key in racing))
    by_key: dict[str, set[str]] = {}
    for (_, key), answer in zip(racing, answers, strict=True):
        by_key.setdefault(key, set()).add(job_id(answer))
    assert {len(ids) for ids in by_key.values()} == {1}
    assert sorted(stored(plain)) == sorted(found for ids in by_key.values() for found in ids)
    # Those that were first submitted by the new table are in its shards.
    again = await asyncio.gather(*(queues[1].submit(request(key)) for key in keys))
    assert [{job_id(answer)} for answer in again] == [by_key[key] for key in keys]


@clause("G-5")
async def test_g05_a_key_of_the_previous_shard_is_found(connection: Connection) -> None:
    old, new = process(connection, *OLD), process(connection, *NEW)
    for number in range(20):
        first = await old.submit(request(f"key {number}", '{"a":1}'))
        assert await new.submit(request(f"key {number}", '{"a":1}')) == Already(job_id(first))  # pyright: ignore[reportArgumentType] - a text
        assert isinstance(await new.submit(request(f"key {number}", '{"a":2}')), Mismatch)


@clause("G-5")
async def test_g05_a_claim_without_its_job_is_completed(
    connection: Connection, plain: Plain
) -> None:
    """A process dies between the claim in the previous shard and the job in the new one."""
    key = next(
        name
        for name in (f"key {number}" for number in range(100))
        if choose(f"idempotency:{name}", range(4)) != choose(f"idempotency:{name}", range(8))
    )
    before, after = (choose(f"idempotency:{key}", range(count)) for count in (4, 8))
    (claimed,) = new_shard_ids(after, 1)
    old_keys = StreamsKeys(f"{{{TAGS[before]}}}:")
    args = (claimed, "echo", 600, f"idempotency:{key}", "", "{}", "")
    await connection.run(SCRIPTS["claim_key"], (old_keys.queue,), args)
    assert stored(plain) == []
    answers = await asyncio.gather(
        process(connection, *OLD).submit(request(key)),
        process(connection, *NEW).submit(request(key)),
    )
    assert {job_id(answer) for answer in answers} == {claimed}
    assert stored(plain) == [claimed]
    assert shard_of(claimed) == after


def foreign_in_second_shard(plain: Plain, key: str) -> str:
    """A job with its key, as a foreign gateway writes them; its id is one of the first shard."""
    keys, found = StreamsKeys(f"{{{TAGS[1]}}}:"), "3f0e1d7a-5a55-4f6e-9d57-000000000001"
    now = int(plain.time()[0]) * 1000
    times = {"created_ts": now, "updated_ts": now, "ttl_s": 600}
    job = {"job_id": found, "task": "echo", "payload": "{}", "status": "queued", **times}
    plain.hset(keys.job(found), mapping={**job, "result": "", "error": ""})
    plain.xadd(keys.queue, {"job_id": found, "task": "echo", "payload": "{}"})
    plain.set(keys.idempotency(key), found, ex=600)
    return found


@clause("G-3", "G-5")
def test_g05_the_key_of_a_job_that_cannot_be_read_makes_no_second_job(
    server: LocalValkey, plain: Plain
) -> None:
    """Regression: the job of a foreign gateway was written into the first shard, too, and ran
    twice; the key of a job in a removed shard was tried a thousand times, and then 500."""
    key = next(
        name
        for name in (f"key{number}" for number in range(100))
        if choose(contract.idempotency_name("", name), range(2)) == 1
    )
    job = foreign_in_second_shard(plain, contract.idempotency_name("", key))
    with ShardedGateway(sharded(server.url, 2, shard_by="job")) as gateway:
        headers = {"idempotency-key": key}
        answer = gateway.client.post(
            "/v1/jobs", json={"task": "echo", "payload": {}}, headers=headers
        )
        problem(answer, 503, "unavailable")
    raw = Raw(plain)
    queues = [StreamsKeys(f"{{{TAGS[number]}}}:").queue for number in range(2)]
    assert [fields["job_id"] for queue in queues for _, fields in raw.entries(queue)] == [job]


@clause("G-5")
async def test_g05_by_tenant_a_key_is_looked_for_in_the_previous_shard(
    connection: Connection,
) -> None:
    old = process(connection, *OLD, by="tenant")
    new = process(connection, *NEW, by="tenant")
    moved = 0
    for number in range(12):
        tenant = f"tenant{number}"
        first = await old.submit(request("one", tenant=tenant))
        assert job_id(await new.submit(request("one", tenant=tenant))) == job_id(first)
        second = await new.submit(request("two", tenant=tenant))
        assert job_id(await old.submit(request("two", tenant=tenant))) == job_id(second)
        moved += shard_of(job_id(first)) != shard_of(job_id(second))
    assert 0 < moved < 12


# ── the table ───────────────────────────────────────────────────────────────────────────────────


@clause("G-5")
async def test_g05_writers_follow_when_every_process_has_reported(connection: Connection) -> None:
    first, second = (ShardTable(connection, jobs(2)) for _ in range(2))
    await first.join()
    await second.join()
    assert first.tables == ((0, 1),)
    # One after the other is restarted with four shards.
    third, fourth = (ShardTable(connection, jobs(4)) for _ in range(2))
    await third.join()
    assert third.tables == ((0, 1),), "it reads four shards, and jobs go to two"
    await first.leave()
    await third.report()
    assert third.tables == ((0, 1),)
    await fourth.join()
    await second.leave()
    await third.report()
    assert third.tables == ((0, 1), (0, 1, 2, 3))
    await fourth.report()
    assert fourth.tables == third.tables
    assert {report.reads for report in fourth.reports} == {(0, 1, 2, 3)}


@clause("G-5")
async def test_g05_a_process_that_lacks_a_shard_does_not_start(connection: Connection) -> None:
    await ShardTable(connection, jobs(4)).join()
    late = ShardTable(connection, jobs(2))
    with pytest.raises(RefusedError, match="the shards 2, 3 get new jobs"):
        await late.join()


@clause("G-5")
async def test_g05_a_dead_process_is_not_waited_for(connection: Connection, plain: Plain) -> None:
    await ShardTable(connection, jobs(2)).join()
    key = f"{{{TAGS[0]}}}:jobs:shards"
    (name,) = [each for each in cast("list[str]", plain.hkeys(key)) if each.startswith("process:")]
    plain.hset(key, name, "1 0,1 0,1")
    new = ShardTable(connection, jobs(4))
    await new.join()
    assert new.tables[-1] == (0, 1, 2, 3)


@clause("G-5")
async def test_g05_jobs_from_before_there_were_shards_are_in_the_first(
    connection: Connection,
) -> None:
    own = jobs(2).of_shard(0)
    before = await StreamsQueue(connection, own).submit(request("once"))
    table = ShardTable(connection, jobs(2))
    await table.join()
    assert table.tables == ((0,), (0, 1))
    queue = router(connection, jobs(2), table)
    assert job_id(await queue.submit(request("once"))) == job_id(before)


@clause("G-5")
async def test_g05_a_closed_shard_gets_no_new_jobs(connection: Connection) -> None:
    table = ShardTable(connection, jobs(4))
    await table.join()
    await table.leave()
    closing = ShardTable(connection, jobs(4, 2, 3))
    await closing.join()
    assert closing.tables[-1] == (0, 1)
    queue = router(connection, jobs(4, 2, 3), closing)
    answers = [await queue.submit(JobRequest("echo", "{}")) for _ in range(30)]
    assert {shard_of(job_id(answer)) for answer in answers} == {0, 1}


@asynccontextmanager
async def full_connection() -> AsyncGenerator[Connection]:
    """Its server is down, and its send queue is full."""
    async with Connection.open("valkey://127.0.0.1:1/0", or_later=True) as opened:
        for _ in range(MAX_COMMANDS):
            opened.call("PING")
        with pytest.raises(NotSent):
            opened.call("PING")
        yield opened


@clause("G-5")
async def test_g05_a_full_send_queue_of_the_first_shard_ends_no_process() -> None:
    """Regression: its error was not that of a silent shard, and ended the gateway."""
    async with full_connection() as full:
        table = ShardTable(full, jobs(2))
        with pytest.raises(BackendUnavailable):
            await table.report()
        async with table.running():
            pass
        assert table.tables == ((0, 1),)


@clause("G-4")
async def test_g04_a_shard_with_a_full_send_queue_is_named_as_silent(
    connection: Connection,
) -> None:
    """Regression: reads of all shards failed with an internal error."""

    async def read(shard: Shard) -> object:
        return await shard.connection.call("PING")

    async with full_connection() as full:
        every = [
            Shard(number, each, own, StreamsQueue(each, own))
            for number, each in enumerate((full, connection))
            for own in [jobs(2).of_shard(number)]
        ]
        found = await Shards(every).gather(read)
        assert (found.values, found.silent) == (["PONG"], (0,))
        with pytest.raises(BackendUnavailable):
            await Shards(every[:1]).gather(read)


# ── whole gateways ──────────────────────────────────────────────────────────────────────────────


@clause("G-5")
def test_g05_shards_doubled_under_fifty_racing_submissions(
    server: LocalValkey, plain: Plain
) -> None:
    """Two gateways with two shards are replaced by two with four, while fifty callers submit the
    same keys again and again to any of them."""
    settings = {count: sharded(server.url, count, shard_by="job") for count in (2, 4)}
    first, second, third, fourth = (ShardedGateway(settings[count]) for count in (2, 2, 4, 4))
    live: list[ShardedGateway] = []
    answers: defaultdict[str, Counter[str]] = defaultdict(Counter)
    stop = Event()

    def call(seed: int) -> int:
        """One caller; how many of its submissions were answered."""
        random, count = Random(seed), 0
        with httpx.Client(timeout=30, trust_env=False) as client:
            while not stop.is_set():
                # New keys all the time, and each of them from many callers at once.
                key = f"key {len(answers) + random.randrange(-20, 4)}"
                body = {"task": "echo", "payload": {"key": key}}
                headers = {"idempotency-key": key}
                try:
                    url = f"{random.choice(live).url}/v1/jobs"
                    answer = client.post(url, json=body, headers=headers)
                except httpx.TransportError:
                    continue  # a gateway that has stopped
                if answer.status_code in (200, 202):
                    answers[key][answer.json()["job_id"]] += 1
                    count += 1
        return count

    def shards() -> Counter[int]:
        return Counter(shard_of(each) for counted in [*answers.values()] for each in [*counted])

    def table() -> str | None:
        return cast("str | None", plain.hget(f"{{{TAGS[0]}}}:jobs:shards", "tables"))

    first.__enter__()
    second.__enter__()
    live += [first, second]
    with ThreadPoolExecutor(50) as pool:
        callers = [pool.submit(call, seed) for seed in range(50)]
        try:
            wait_until_sync(lambda: len(answers) > 50)
            third.__enter__()
            live[0] = third
            first.__exit__()
            fourth.__enter__()
            live[1] = fourth
            second.__exit__()
            wait_until_sync(lambda: str(table()).endswith("=0,1,2,3"))
            wait_until_sync(lambda: min(shards()[number] for number in (2, 3)) > 20)
        finally:
            stop.set()
        assert all(caller.result() for caller in callers)
    third.__exit__()
    fourth.__exit__()
    assert {key: len(ids) for key, ids in answers.items() if len(ids) != 1} == {}
    ids = {job for counted in answers.values() for job in counted}
    assert set(stored(plain)) == ids


# ── for the operator ────────────────────────────────────────────────────────────────────────────


@clause("G-5")
def test_g05_shards_are_shown(server: LocalValkey, run_program: StartProgram) -> None:
    settings = sharded(server.url, 4, shard_by="job", closed_shards=(3,))
    with ShardedGateway(settings) as started:
        for _ in range(12):
            started.submit()
        variables = {
            "VALKEY_URL": server.url,
            "JOBWIRE_JOBS_SHARDS": "4",
            "JOBWIRE_JOBS_CLOSED_SHARDS": "3",
        }
        shown = run_program("-m", "jobwire", "shards", "--json", **variables)
        assert shown.wait() == 0, shown.output
        rows = [json.loads(line) for line in shown.output.splitlines()]
        assert [row["prefix"] for row in rows] == [f"{{{tag}}}:" for tag in TAGS[:4]]
        assert sum(row["waiting"] for row in rows) == sum(row["stored"] for row in rows) == 12
        assert [row["gets_jobs"] for row in rows] == [True, True, True, False]
    servers = f"0={server.url},1=valkey://127.0.0.1:1/0"
    partly = run_program("-m", "jobwire", "shards", "--json", JOBWIRE_JOBS_SHARDS=servers)
    assert partly.wait() == 0, partly.output
    assert [json.loads(line) for line in partly.output.splitlines()][1:] == [
        {"number": 1, "error": "no answer"}
    ]
    without = run_program("-m", "jobwire", "shards", VALKEY_URL=server.url)
    assert without.wait() == 2
    assert "there are no shards" in without.output


@clause("G-5")
def test_g05_the_commands_that_balance_a_cluster() -> None:
    """As few as possible, shards with little load first."""

    def row(number: int, server: str, load: int) -> ShardRow:
        return ShardRow(number, "", server, 100 + number, True, 0, 0, 0, 0, load, 0)

    rows = [row(number, "a:1", 10 - number) for number in range(5)] + [row(5, "b:2", 1)]
    nodes = {"a:1": "idA", "b:2": "idB", "c:3": "idC"}
    moves = balance(rows, nodes)
    assert [(move.shard, move.target) for move in moves] == [(4, "c:3"), (3, "b:2"), (2, "c:3")]
    assert moves[0].command == (
        "valkey-cli -h a -p 1 CLUSTER MIGRATESLOTS SLOTSRANGE 104 104 NODE idC"
    )
    assert moves[0]._replace(source="[::1]:7").command.startswith("valkey-cli -h ::1 -p 7 CLUSTER")
    assert balance([row(0, "a:1", 1), row(1, "b:2", 1)], nodes) == []
    assert balance(rows, {}) == []
