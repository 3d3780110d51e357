"""Jobs over shards: choice, ids, worker, gateway, and what foreign programs see (G-1 … G-4)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, cast

import httpx
import pytest

from jobwire.gateway.settings import GatewaySettings
from jobwire.job.ids import new_job_id, new_shard_ids, shard_of
from jobwire.job.messages import JobRequest, TaskDefinition
from jobwire.local import LocalValkey
from jobwire.settings import load
from jobwire.settings.schema import descriptions, sections
from jobwire.settings.tree import Settings
from jobwire.systems.jobs.doctor import Place, examine_queues
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.queue import StreamsQueue
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.systems.jobs.shard_choice import choose
from jobwire.systems.jobs.shard_settings import TAGS, ShardList
from jobwire.valkey import Config, Connection
from jobwire.worker import App, Context
from tests.cli.runner import jobwire
from tests.support import Plain, Proxy, clause, wait_until, wait_until_sync
from tests.support.jobs_http import bearer, key
from tests.support.raw import Raw
from tests.support.servers import plain_client
from tests.support.shards import ShardedGateway, sharded, sharded_worker
from tests.support.streams import StreamsLab

pytestmark = pytest.mark.xdist_group("shards")

GOLDEN: Final = Path(__file__).parent / "shards.json"
TENANTS: Final = tuple(f"tenant{number}" for number in range(8))
KEYS: Final = GatewaySettings(
    keys=(
        key("boss", "admin", "read", "submit", tenant="*"),
        *(key(name, "admin", "read", "submit", tenant=name) for name in TENANTS),
    )
)

NO_SERVER: Final = "valkey://127.0.0.1:1/0"

app = App("echoes")


@app.handler("echo")
async def echo(ctx: Context) -> dict[str, object]:
    await ctx.progress(50, "half")
    if ctx.payload.get("fail"):
        raise ValueError("asked to fail")
    while ctx.payload.get("sleep"):
        await asyncio.sleep(0.01)
    return {"echo": ctx.payload}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalValkey]:
    """A server for shards: their keys have prefixes of their own."""
    with LocalValkey(tmp_path_factory.mktemp("shards"), admin=True) as started:
        yield started


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalValkey]:
    """A second server."""
    with LocalValkey(tmp_path_factory.mktemp("others"), admin=True) as started:
        yield started


@pytest.fixture(autouse=True)
def plain(server: LocalValkey) -> Iterator[Plain]:
    with plain_client(server, "tests-plain") as client:
        yield client
        client.flushall()


@contextmanager
def gateway(server: LocalValkey, shards: int = 4, **jobs: object) -> Generator[ShardedGateway]:
    keys = cast("GatewaySettings | None", jobs.pop("gateway", None))
    with ShardedGateway(sharded(server.url, shards, keys, **jobs)) as started:
        yield started


@asynccontextmanager
async def served(
    server: LocalValkey, shards: ShardList | int = 4, **jobs: object
) -> AsyncGenerator[tuple[ShardedGateway, httpx.AsyncClient]]:
    """A gateway and a worker."""
    keys = cast("GatewaySettings | None", jobs.pop("gateway", None))
    # With servers of their own, shards do not need that of `valkey.url`.
    url = server.url if isinstance(shards, int) else NO_SERVER
    settings = sharded(url, shards, keys, **jobs)
    started = ShardedGateway(settings)
    await asyncio.to_thread(started.__enter__)
    try:
        async with (
            sharded_worker(app, settings),
            httpx.AsyncClient(base_url=started.url, timeout=30, trust_env=False) as client,
        ):
            yield started, client
    finally:
        await asyncio.to_thread(started.__exit__)


async def submit(client: httpx.AsyncClient, **more: object) -> str:
    headers = cast("dict[str, str]", more.pop("headers", {}))
    body = {"task": "echo", "payload": more.pop("payload", {}), **more}
    answer = await client.post("/v1/jobs", json=body, headers=headers)
    assert answer.status_code in (200, 202), answer.text
    return cast(str, answer.json()["job_id"])


async def done(client: httpx.AsyncClient, job_id: str, **headers: str) -> dict[str, Any]:
    answer = await client.get(f"/v1/jobs/{job_id}", headers={"prefer": "wait=30", **headers})
    assert answer.status_code == 200, answer.text
    return cast("dict[str, Any]", answer.json())


def slot(tag: str) -> int:
    """The slot of a hash tag, as the Cluster specification computes it: CRC-16/XMODEM."""
    crc = 0
    for byte in tag.encode():
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ (0x1021 if crc & 0x8000 else 0)) & 0xFFFF
    return crc % 16384


# ── G-1 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("G-1")
def test_g01_tags_and_choices_are_pinned() -> None:
    """Another tag or another choice would lose the jobs and keys that are stored."""
    names = [f"name {number}" for number in range(200)]
    found = {
        "tags": list(TAGS),
        "choices": {
            str(count): [choose(name, range(count)) for name in names] for count in (2, 8, 16, 64)
        },
    }
    assert found == json.loads(GOLDEN.read_text())


@clause("G-1")
@pytest.mark.parametrize("count", [1, 2, 4, 8, 16, 32, 64])
@pytest.mark.parametrize("nodes", [1, 2, 4, 8, 16])
def test_g01_powers_of_two_spread_evenly_over_slots(count: int, nodes: int) -> None:
    on = Counter(slot(tag) * nodes // 16384 for tag in TAGS[:count])
    assert max(on.values()) == max(1, count // nodes)


@clause("G-1")
def test_g01_without_the_setting_the_names_are_those_of_the_documents() -> None:
    jobs = StreamsSettings()
    assert (jobs.key_prefix, jobs.shards.numbers, jobs.shard) == ("", (), 0)


@clause("G-1")
@pytest.mark.parametrize(
    ("variables", "fault"),
    [
        ({"SHARDS": "65"}, "0-64"),
        ({"SHARDS": "many"}, "not a number of shards"),
        ({"SHARDS": "1=valkey://a"}, "has no shard 0"),
        ({"SHARDS": "0=valkey://a,1=valkey://a"}, "same URL"),
        ({"SHARDS": "0=a"}, "must be a URL"),
        ({"SHARDS": "0=valkey://a,0=valkey://b"}, "shard 0 is set twice"),
        ({"SHARDS": "0=valkey://a,00=valkey://b"}, "shard 00 is set twice"),
        ({"SHARDS": "0=http://a"}, "JOBWIRE_JOBS_SHARDS jobs.shards: the URL of shard 0 starts"),
        ({"SHARDS": "0=valkey://a,1=valkey://b/x"}, "the URL of shard 1 has a bad database 'x'"),
        ({"SHARDS": "0=valkey://a,b"}, "the URL of shard 0 has several hosts"),
        ({"SHARDS": "4", "KEY_PREFIX": "{a}:"}, "hash tag"),
        ({"SHARDS": "4", "CLOSED_SHARDS": "4"}, "there is no shard 4"),
        ({"SHARDS": "4", "CLOSED_SHARDS": "0"}, "cannot be closed"),
        ({"SHARDS": "4", "QUEUE_SHARDS": "mail=9"}, "there is no shard 9"),
        ({"SHARDS": "4", "QUEUE_SHARDS": "mail"}, "as mail=0"),
    ],
)
def test_g01_bad_settings_are_refused_in_one_line(variables: dict[str, str], fault: str) -> None:
    environ = {f"JOBWIRE_JOBS_{name}": value for name, value in variables.items()}
    with pytest.raises(ValueError, match=fault) as refused:
        load(environ=environ)
    assert len(str(refused.value).splitlines()) == 1


@clause("G-1")
def test_g01_a_variable_has_urls_with_several_hosts() -> None:
    """Regression: the hosts of a URL were read as further shards."""
    urls = {
        0: "valkey://u:secret@a/0",
        1: "valkey+sentinel://u@b,c:26380,d/main?sentinel_password=e",
        2: "valkey+cluster://f,g/?tag=jobs",
    }
    variable = ",".join(f"{number}={url}" for number, url in urls.items())
    assert ShardList.from_setting(variable).urls == urls
    assert ShardList.from_setting(variable.replace(",1=", ", 1=") + ",").urls == urls


@clause("G-1")
@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("valkey://a", "valkey://a/0", True),
        ("valkey://a", "redis://u:secret@A:6379/?pool_size=3", True),
        ("valkey://a/1", "valkey://a?db=1", True),
        ("unix:///run/x.sock", "unix:///run/x.sock?db=0", True),
        ("valkey+sentinel://a,b/main", "valkey+sentinel://b:26379,c/main/0", True),
        ("valkey+cluster://a,b", "valkey+cluster://b:6379/?tag=jobs", True),
        ("valkey://a", "valkey://a/1", False),
        ("valkey://a", "valkey://a:6380", False),
        ("valkey+sentinel://a,b/main", "valkey+sentinel://a,b/other", False),
        ("valkey+sentinel://a,b/main", "valkey+sentinel://a,b/main/1", False),
    ],
)
def test_g01_two_shards_in_one_database_are_refused_however_they_are_written(
    first: str, second: str, is_same: bool
) -> None:
    """Regression: `valkey://a` and `valkey://a/0` were two shards with the same keys."""
    faults = list(ShardList(0, {0: first, 1: second}).faults(""))
    assert [("same URL" in fault) for fault in faults] == [True] * is_same


@clause("G-1")
def test_g01_passwords_of_shards_are_not_shown() -> None:
    loaded = load(environ={"JOBWIRE_JOBS_SHARDS": "0=valkey://u:hunter2@a,1=valkey://b"})
    assert "hunter2" not in str(loaded.shown())
    assert any("hunter2" in each for each in loaded.secrets)


@clause("G-1")
async def test_g01_servers_of_a_mapping_have_the_documents_names(
    server: LocalValkey, others: LocalValkey, plain: Plain
) -> None:
    urls = ShardList(0, {0: server.url, 1: others.url})
    async with served(server, urls, shard_by="job") as (_, client):
        ids = [await submit(client) for _ in range(20)]
        assert {shard_of(job_id) for job_id in ids} == {0, 1}
        assert [(await done(client, job_id))["status"] for job_id in ids] == ["done"] * 20
        with plain_client(others, "tests-plain") as second:
            for job_id in ids:
                client_of = second if shard_of(job_id) else plain
                assert client_of.hget(f"job:{job_id}", "status") == "done"
            second.flushall()


# ── G-2 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("G-2")
async def test_g02_a_tenant_has_one_shard(server: LocalValkey) -> None:
    async with served(server, gateway=KEYS) as (_, client):
        shards: dict[str, int] = {}
        for tenant in TENANTS:
            ids = [await submit(client, headers=bearer(tenant)) for _ in range(3)]
            (shards[tenant],) = {shard_of(job_id) for job_id in ids}
            assert (await done(client, ids[0], **bearer(tenant)))["status"] == "done"
        assert shards == {tenant: choose(tenant, range(4)) for tenant in TENANTS}
        assert len(set(shards.values())) > 1


@clause("G-2")
def test_g02_a_queue_has_one_shard(server: LocalValkey) -> None:
    with gateway(server, shard_by="queue", queue_shards=("default=3",)) as started:
        ids = [str(started.submit()["job_id"]) for _ in range(5)]
        assert [shard_of(job_id) for job_id in ids] == [3] * 5


@clause("G-2")
def test_g02_by_job_a_key_has_one_shard_and_others_any(server: LocalValkey) -> None:
    with gateway(server, shard_by="job") as started:
        assert len({shard_of(str(started.submit()["job_id"])) for _ in range(40)}) == 4
        first = {number: started.submit(key=f"k{number}")["job_id"] for number in range(10)}
        again = {number: started.submit(key=f"k{number}")["job_id"] for number in range(10)}
        assert first == again


@clause("G-2")
def test_g02_a_batch_is_spread_and_keeps_its_order(server: LocalValkey) -> None:
    with gateway(server, shard_by="job") as started:
        items = [
            {"task": "echo", "payload": {"n": number}, "idempotency_key": f"key {number}"}
            if number % 2
            else {"task": "echo", "payload": {"n": number}}
            for number in range(40)
        ]
        answer = started.client.post("/v1/jobs/batch", json={"jobs": items})
        assert answer.status_code == 200, answer.text
        ids = [each["job_id"] for each in answer.json()["results"]]
        assert len({shard_of(job_id) for job_id in ids}) > 1
        for number, job_id in enumerate(ids):
            job = started.client.get(f"/v1/jobs/{job_id}").json()
            assert job["payload"] == {"n": number}


@clause("G-2")
def test_g02_the_help_begins_with_who_needs_job() -> None:
    (section,) = [each for each in sections(Settings) if each.path == "jobs"]
    help_text = descriptions(section)["jobs.shard_by"]
    assert help_text.startswith("One tenant with one queue needs `job`")


# ── G-3 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("G-3")
def test_g03_ids_after_the_first_shard_are_uuids_of_version_8() -> None:
    for shard in (1, 9, 63):
        for job_id in new_shard_ids(shard, 100):
            assert (job_id[:2], job_id[14], shard_of(job_id)) == (f"{shard:02x}", "8", shard)
            assert job_id[19] in "89ab"
    assert {new_job_id()[14] for _ in range(100)} == {"4"}
    assert {shard_of(job_id) for job_id in new_shard_ids(0, 100)} == {0}


@clause("G-3")
@pytest.mark.parametrize(
    "text",
    ["", "x", "my-own-id", "8" * 36, "01234567-89ab-7def-8123-456789abcdef", "é" * 36, "1" * 200],
)
def test_g03_every_other_id_is_the_first_shards(text: str) -> None:
    assert shard_of(text) == 0


@clause("G-3")
def test_g03_a_job_of_an_unknown_shard_is_not_found(server: LocalValkey) -> None:
    (job_id,) = new_shard_ids(40, 1)
    with gateway(server) as started:
        for method, path in (
            ("GET", ""),
            ("GET", "/events"),
            ("GET", "/wire"),
            ("POST", "/cancel"),
            ("POST", "/retry"),
            ("GET", "/steps/a"),
        ):
            answer = started.client.request(method, f"/v1/jobs/{job_id}{path}")
            assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found"), path


# ── G-4 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("G-4")
async def test_g04_a_worker_reads_all_shards_and_shares_its_slots(server: LocalValkey) -> None:
    async with served(server, 8, shard_by="job") as (_, client):
        ids = [await submit(client, payload={"n": number}) for number in range(60)]
        for number, job_id in enumerate(ids):
            job = await done(client, job_id)
            assert (job["status"], job["result"]) == ("done", {"echo": {"n": number}})
        events = (await client.get(f"/v1/jobs/{ids[-1]}/events")).text
        kinds = [line[7:] for line in events.splitlines() if line.startswith("event: ")]
        assert kinds == ["hello", "queued", "running", "progress", "done"]


@clause("G-4")
async def test_g04_a_job_of_any_shard_can_be_canceled_and_retried(server: LocalValkey) -> None:
    async with served(server, shard_by="job") as (_, client):
        ids: dict[int, str] = {}
        while len(ids) < 4:
            job_id = await submit(client, payload={"sleep": True})
            if shard_of(job_id) in ids:
                await client.post(f"/v1/jobs/{job_id}/cancel")
            else:
                ids[shard_of(job_id)] = job_id
        for job_id in ids.values():
            await _has_status(client, job_id, "running")
            answer = await client.post(f"/v1/jobs/{job_id}/cancel")
            assert answer.status_code == 202, answer.text
            assert (await done(client, job_id))["status"] == "canceled"
            again = await client.post(f"/v1/jobs/{job_id}/retry")
            assert again.status_code == 202, again.text
            await client.post(f"/v1/jobs/{again.json()['job_id']}/cancel")


async def _has_status(client: httpx.AsyncClient, job_id: str, status: str) -> None:
    async def found() -> bool:
        return (await client.get(f"/v1/jobs/{job_id}")).json()["status"] == status

    await wait_until(found, f"the job to be {status}")


@clause("G-4")
async def test_g04_a_worker_may_be_bound_to_shards(server: LocalValkey) -> None:
    settings = sharded(server.url, 4, shard_by="job")
    with ShardedGateway(settings) as started:
        async with sharded_worker(app, settings, shards=(1, 2)):
            submitted = [await asyncio.to_thread(started.submit) for _ in range(40)]
            ids = [str(each["job_id"]) for each in submitted]

            def ended() -> set[str]:
                jobs = [started.client.get(f"/v1/jobs/{job_id}").json() for job_id in ids]
                return {job["job_id"] for job in jobs if job["status"] == "done"}

            expected = {job_id for job_id in ids if shard_of(job_id) in (1, 2)}
            await wait_until(lambda: ended() >= expected, "the jobs of its shards to end")
            assert ended() == expected
            places = [
                Place(Config.from_url(server.url), settings.jobs.of_shard(number))
                for number in range(4)
            ]
            (unread,) = [each async for each in examine_queues(places)]
            waiting = sum(shard_of(job_id) == 3 for job_id in ids)
            assert unread.found == (
                f"{waiting} jobs waiting in shard 3, and no live worker reads it"
            )
            # It is registered in the first shard, where the gateway looks for tasks.
            (worker,) = started.client.get("/v1/workers").json()["workers"]
            assert worker["handlers"] == ["echo"]
            assert started.client.get("/v1/scale").json()["waiting"] == 40 - len(expected)


@clause("G-4", "J-53")
async def test_g04_a_worker_that_is_only_registered_takes_no_jobs_of_a_former_queue(
    server: LocalValkey, plain: Plain
) -> None:
    """Regression: where the App's former queue existed, its jobs were taken and never run."""
    own = StreamsSettings(shards=ShardList(2)).of_shard(0)
    async with Connection.open(server.url, name="tests-worker") as connection:
        queue = StreamsQueue(connection, own)
        plain.sadd(queue.keys.queues, "former")
        names = ("echoes", "former")
        engine = StreamsEngine(connection, own, queues=names[:1], former_queue="former")
        engine.only_register()
        await engine.register([TaskDefinition("echo")], slots=1)
        for name in names:
            await queue.submit(JobRequest("echo", "{}", queue=name))
        assert not await engine.wait(0.1)
        for name in names:
            stream = queue.keys.named_queue(name)
            assert plain.xlen(stream) == 1
            groups = cast("list[dict[str, int]]", plain.xinfo_groups(stream))
            assert sum(group["pending"] for group in groups) == 0
        await engine.deregister()


@clause("G-4")
@pytest.mark.parametrize("heartbeat_s", [10.0, 0.5])
@pytest.mark.usefixtures("product_limits")
async def test_g04_silent_shards_do_not_cost_the_leases_of_the_others(
    server: LocalValkey, others: LocalValkey, heartbeat_s: float
) -> None:
    """Regression: renewals and late heartbeats wait for a silent server, in turn for two leases."""
    lease, held, over = timedelta(seconds=9), Counter[str](), asyncio.Event()
    holding = App("echoes")

    @holding.handler("echo")
    async def hold(ctx: Context) -> None:
        held[ctx.job.id] += 1
        await over.wait()

    with Proxy(others.port) as proxy, plain_client(server) as first:
        later = {number: f"{proxy.url(others.url)[:-1]}{number}" for number in range(1, 9)}
        urls = ShardList(0, {0: server.url, **later})
        settings = sharded(server.url, urls, shard_by="job", heartbeat_s=heartbeat_s)
        with ShardedGateway(settings) as started:
            async with (
                sharded_worker(holding, settings, slots=100, lease=lease),
                sharded_worker(holding, settings, shards=(0,), lease=lease),
            ):

                async def submit_more() -> bool:
                    await asyncio.to_thread(started.submit)
                    return len({shard_of(job_id) for job_id in held}) == 9

                await wait_until(submit_more, "a running job in each shard")
                idle = [0]

                def renewed() -> bool:
                    (row,) = first.xpending_range("jobs:stream", "workers", "-", "+", 1)
                    idle.append(int(row["time_since_delivered"]))
                    return sum(after < before for before, after in pairwise(idle)) > 1

                proxy.silence()
                try:
                    await wait_until(lambda: max(held.values()) > 1 or renewed(), "renewals")
                    assert max(held.values()) == 1, "a job was taken from a worker that lives"
                finally:
                    proxy.heal()
                    proxy.cut()
                    over.set()


@clause("G-4")
def test_g04_lists_merge_by_creation_and_id_with_one_cursor(server: LocalValkey) -> None:
    with gateway(server, 8, shard_by="job") as started:
        made = [str(started.submit(payload={"n": n})["job_id"]) for n in range(60)]
        listed: list[dict[str, Any]] = []
        cursor: str | None = ""
        while cursor is not None:
            query = {"limit": "7", **({"cursor": cursor} if cursor else {})}
            page = started.client.get("/v1/jobs", params=query).json()
            assert len(page["jobs"]) <= 7
            assert (page["total"], "incomplete" in page) == (60, False)
            listed += page["jobs"]
            cursor = page["cursor"]
        places = [(job["created_ts"], job["job_id"]) for job in listed]
        assert places == sorted(places, reverse=True)
        assert sorted(job_id for _, job_id in places) == sorted(made)


@clause("G-4", "J-14", "J-39")
@pytest.mark.parametrize("created", ["{ms}.25", "inf", "nan", "-5", "never"])
async def test_g04_lists_have_a_foreign_gateways_job_with_any_time(
    server: LocalValkey, plain: Plain, created: str
) -> None:
    """Regression: the cursor had its fraction, which no number has: the list was an error."""
    raw, prefix = Raw(plain), f"{{{TAGS[0]}}}:"
    with ShardedGateway(sharded(server.url, 2)) as started:
        jobs = {str(started.submit()["job_id"]) for _ in range(3)}
        fields = {"job_id": "theirs", "task": "echo", "payload": "{}", "status": "queued"}
        times = {"created_ts": created.format(ms=raw.now_ms()), "updated_ts": "1", "ttl_s": "600"}
        raw.write(f"{prefix}job:theirs", {**fields, **times, "result": "", "error": ""}, 600)
        del fields["status"]
        raw.add(f"{prefix}jobs:stream", fields)
        async with Connection.open(server.url) as connection:
            lab = StreamsLab(connection, key_prefix=prefix)
            await lab.maintain("index_foreign")  # unless the gateway's own pass was first
        assert "theirs" in raw.members(f"{prefix}jobs:index")
        listed, cursor = list[str](), ""
        while cursor is not None:
            query = {"limit": "1", **({"cursor": cursor} if cursor else {})}
            page = started.client.get("/v1/jobs", params=query).json()
            listed += [job["job_id"] for job in page["jobs"]]
            cursor = page["cursor"]
    assert sorted(listed) == sorted({*jobs, "theirs"})


@clause("G-4")
async def test_g04_counts_add_up(server: LocalValkey) -> None:
    async with served(server, shard_by="job") as (_, client):
        for _ in range(12):
            assert (await done(client, await submit(client)))["status"] == "done"
        for number in range(8):
            job_id = await submit(client, payload={"fail": True}, max_attempts=1)
            assert (await done(client, job_id))["status"] == "error", number
        for _ in range(6):
            await submit(client, delay_s=3600)
        (row,) = (await client.get("/v1/overview")).json()["systems"]
        assert (row["delayed"], row["waiting"], row["workers"]) == (6, 0, 1)
        assert (row["submitted"], row["done"], row["error"]) == (26, 12, 8)
        (kind,) = (await client.get("/v1/failures", params={"hours": 2})).json()["failures"]
        assert kind["count"] == 8
        stats = (await client.get("/v1/stats")).json()
        assert sum(minute["submitted"] for minute in stats["minutes"]) == 26
        assert sum(minute["done"] for minute in stats["minutes"]) == 12
        metrics = (await client.get("/metrics")).text
        assert 'jobwire_jobs{queue="",state="delayed"} 6.0' in metrics
        assert "jobwire_jobs_unfinished 6.0" in metrics
        assert "jobwire_workers 1.0" in metrics
        found = (await client.get("/v1/search", params={"q": "echo"})).json()["found"]
        assert len(found) == 20
        (queue,) = (await client.get("/v1/jobs/queues")).json()["queues"]
        assert queue["workers"] == 1


@clause("G-4")
def test_g04_queues_are_paused_and_purged_in_all_shards(server: LocalValkey, plain: Plain) -> None:
    with gateway(server, shard_by="job") as started:
        for _ in range(20):
            started.submit()
        assert started.client.post("/v1/jobs/queues/default/pause").status_code == 200
        paused = {tag for tag in TAGS if plain.sismember(f"{{{tag}}}:jobs:paused", "default")}
        assert paused == set(TAGS[:4])
        assert started.client.post("/v1/jobs/queues/default/resume").status_code == 200
        answer = started.client.post("/v1/jobs/queues/default/purge")
        assert (answer.status_code, answer.json()["canceled"]) == (200, 20)
        assert started.client.get("/v1/scale").json()["waiting"] == 0


@clause("G-4", "J-53")
def test_g04_a_purge_takes_as_many_calls_as_it_needs(
    server: LocalValkey, others: LocalValkey
) -> None:
    """Regression: it was limited as one read, and a long queue was answered with 503 each time."""
    with Proxy(others.port) as proxy:
        urls = ShardList(0, {0: server.url, 1: proxy.url(others.url)})
        settings = sharded(server.url, urls, shard_by="queue", queue_shards=("default=1",))
        with ShardedGateway(settings) as started:
            jobs: list[dict[str, object]] = [{"task": "echo", "payload": {}}] * 1000
            answer = started.client.post("/v1/jobs/batch", json={"jobs": jobs})
            assert {each["status"] for each in answer.json()["results"]} == {202}
            proxy.delay_s = 0.2  # each way: together longer than a shard may take for a read
            answer = started.client.post("/v1/jobs/queues/default/purge")
            assert (answer.status_code, answer.json().get("canceled")) == (200, 1000)
            proxy.refuse()
            wait_until_sync(
                lambda: started.client.get("/v1/jobs").json().get("incomplete") == [1],
                "the shard to be named",
            )
            assert started.client.post("/v1/jobs/queues/default/purge").status_code == 503
    with plain_client(others, "tests-plain") as second:
        second.flushall()


@clause("G-4")
@pytest.mark.usefixtures("product_limits")
def test_g04_a_silent_shard_is_named_and_the_others_are_shown(
    server: LocalValkey, tmp_path: Path
) -> None:
    with LocalValkey(tmp_path / "second", admin=True) as second:
        urls = ShardList(0, {0: server.url, 1: second.url})
        with ShardedGateway(sharded(server.url, urls, shard_by="job")) as started:
            ids = [str(started.submit()["job_id"]) for _ in range(20)]
            first = {job_id for job_id in ids if not shard_of(job_id)}
            second.kill()
            page = started.client.get("/v1/jobs", params={"limit": 100}).json()
            assert {job["job_id"] for job in page["jobs"]} == first
            assert page["incomplete"] == [1]
            assert started.client.get("/v1/jobs/queues").json()["incomplete"] == [1]
            for path in ("/v1/overview", "/v1/stats", "/v1/failures", "/v1/search?q=echo"):
                (named,) = started.client.get(path).json()["unavailable"]
                assert named == {"system": "jobs", "detail": "incomplete: no answer from shard 1"}
            assert started.client.get("/v1/scale").status_code == 503
            ready = started.client.get("/readyz")
            (part,) = (each for each in ready.json()["parts"] if each["name"] == "shards")
            assert (ready.status_code, part["state"]) == (200, "degraded")
            assert "no connection to shard 1;" in part["note"]
            counted = started.client.post("/v1/jobs/cancel", json={"task": "echo", "dry_run": True})
            assert counted.status_code == 503
            assert counted.json()["detail"] == "incomplete: no answer from shard 1"
            job = started.client.get(f"/v1/jobs/{next(iter(first))}")
            assert job.json()["status"] == "queued"
            # A script would take "there is no such job" for the truth.
            program = partial(jobwire, cwd=tmp_path, env={"JOBWIRE_URL": started.url})
            lines = program("list", "--limit", "100")
            assert len(lines.stdout.splitlines()) == len(first)
            assert "incomplete: no answer from shard 1" in lines.stderr
            lost = next(job_id for job_id in ids if shard_of(job_id))
            sought = program("job", lost[:12])
            assert (sought.returncode, sought.stdout) == (3, "")
            assert "no answer from shard 1" in sought.stderr


@clause("G-4")
@pytest.mark.parametrize("is_down_at_start", [False, True])
@pytest.mark.usefixtures("product_limits")
def test_g04_a_silent_shard_neither_delays_nor_refuses_jobs_of_the_others(
    server: LocalValkey, tmp_path: Path, is_down_at_start: bool
) -> None:
    with LocalValkey(tmp_path / "second", admin=True) as second:
        urls = ShardList(0, {0: server.url, 1: second.url})
        settings = sharded(server.url, urls, shard_by="job")
        # Longer than a client waits for its answer.
        patient = replace(settings.valkey, failover_timeout=timedelta(minutes=2))
        if is_down_at_start:
            second.kill()
        with ShardedGateway(replace(settings, valkey=patient)) as started:
            if not is_down_at_start:
                second.kill()
                wait_until_sync(
                    lambda: started.client.get("/v1/jobs").json().get("incomplete") == [1],
                    "the shard to be named",
                )
            assert {shard_of(str(started.submit()["job_id"])) for _ in range(20)} == {0}


@clause("G-4", "J-57")
def test_g04_a_full_shard_that_died_does_not_keep_the_others_from_accepting_jobs(
    server: LocalValkey, tmp_path: Path
) -> None:
    """Regression: its last reading counted for ever."""
    with LocalValkey(tmp_path / "second", admin=True) as second:
        urls = ShardList(0, {0: server.url, 1: second.url})
        with ShardedGateway(sharded(server.url, urls, shard_by="job")) as started:

            def submitted() -> httpx.Response:
                return started.client.post("/v1/jobs", json={"task": "echo", "payload": {}})

            with plain_client(second) as plain:
                memory = cast("dict[str, int]", plain.info("memory"))
                plain.config_set("maxmemory", int(memory["used_memory"] * 1.05))
            wait_until_sync(lambda: "memory" in submitted().text, "the shard to be full")
            second.kill()
            wait_until_sync(
                lambda: started.client.get("/v1/jobs").json().get("incomplete") == [1],
                "the shard to be named",
            )
            assert {shard_of(str(started.submit()["job_id"])) for _ in range(5)} == {0}


@clause("G-4")
async def test_g04_other_shards_get_jobs_while_the_first_is_silent(
    server: LocalValkey, tmp_path: Path
) -> None:
    """Regression: registrations were read in the first shard only, and all jobs were refused."""
    shouting = App("echoes")
    shouting.handler("shout")(echo)
    with LocalValkey(tmp_path / "first", admin=True) as first:
        urls = ShardList(0, {0: first.url, 1: server.url})
        settings = sharded(NO_SERVER, urls, shard_by="job")
        with ShardedGateway(settings) as started:
            async with sharded_worker(shouting, settings):
                first.kill()

                def is_named() -> bool:
                    return started.client.get("/v1/jobs").json().get("incomplete") == [0]

                await wait_until(is_named, "the shard to be named")
                job_id = str((await asyncio.to_thread(started.submit, "shout"))["job_id"])
                assert shard_of(job_id) == 1
                await wait_until(
                    lambda: started.client.get(f"/v1/jobs/{job_id}").json()["status"] == "done",
                    "the job of the second shard",
                )
                queues = (await asyncio.to_thread(started.client.get, "/v1/jobs/queues")).json()
                assert queues["incomplete"] == [0]
                assert {row["name"]: row["workers"] for row in queues["queues"]}["echoes"] == 1
                other: dict[str, object] = {"task": "whisper", "payload": {}}
                answer = await asyncio.to_thread(started.client.post, "/v1/jobs", json=other)
                assert answer.status_code == 503, "the first shard may know the task"
                first.start()


@clause("G-4")
async def test_g04_a_silent_shard_holds_no_slots(server: LocalValkey, tmp_path: Path) -> None:
    """What it may have started is found when it answers."""
    together, barrier = App("echoes"), asyncio.Barrier(3)

    @together.handler("echo")
    async def meet(ctx: Context) -> None:
        await barrier.wait()

    with LocalValkey(tmp_path / "second", admin=True) as second:
        urls = ShardList(0, {0: server.url, 1: second.url})
        settings = sharded(server.url, urls, shard_by="job")
        with ShardedGateway(settings) as started:

            async def run_three() -> set[int]:
                made = [await asyncio.to_thread(started.submit) for _ in range(3)]
                paths = [f"/v1/jobs/{each['job_id']}" for each in made]
                await wait_until(
                    lambda: all(
                        started.client.get(path).json()["status"] == "done" for path in paths
                    ),
                    "three jobs at the same time",
                )
                return {shard_of(str(each["job_id"])) for each in made}

            async with sharded_worker(together, settings, slots=3):
                second.kill()
                await wait_until(
                    lambda: started.client.get("/v1/jobs").json().get("incomplete") == [1],
                    "the shard to be named",
                )
                assert await run_three() == {0}
                second.start()

                async def in_both() -> bool:
                    return await run_three() == {0, 1}

                await wait_until(in_both, "jobs of both shards")


@clause("G-4")
async def test_g04_a_worker_starts_beside_a_shard_that_refuses_writes(
    server: LocalValkey, tmp_path: Path
) -> None:
    with LocalValkey(tmp_path / "second", admin=True) as second, plain_client(second) as plain:
        urls = ShardList(0, {0: server.url, 1: second.url})
        settings = sharded(server.url, urls, shard_by="job")
        with ShardedGateway(settings) as started:
            ids = [str(started.submit()["job_id"]) for _ in range(20)]
            plain.config_set("min-replicas-to-write", 1)
            async with sharded_worker(app, settings):

                def done(number: int) -> bool:
                    own = (job_id for job_id in ids if shard_of(job_id) == number)
                    answers = (started.client.get(f"/v1/jobs/{job_id}") for job_id in own)
                    return all(answer.json()["status"] == "done" for answer in answers)

                await wait_until(lambda: done(0), "the jobs of the first shard")
                assert not done(1)
                plain.config_set("min-replicas-to-write", 0)
                await wait_until(lambda: done(1), "the jobs of the second")


@clause("G-4")
@pytest.mark.usefixtures("product_limits")
async def test_g04_programs_start_without_a_shard_and_use_it_when_it_answers(
    server: LocalValkey, tmp_path: Path
) -> None:
    with LocalValkey(tmp_path / "second", admin=True) as second:
        urls = ShardList(0, {0: server.url, 1: second.url})
        settings = sharded(server.url, urls, shard_by="job")
        former, own = App("former"), App("echoes")
        for each in (former, own):
            each.handler("shout")(echo)
        own.former_name = "former"
        with ShardedGateway(settings) as before:
            async with sharded_worker(former, settings) as worker:
                worker.pause()
                await worker.wait_idle()
                waiting = [str(before.submit("shout")["job_id"]) for _ in range(20)]
        first, later = (
            [job_id for job_id in waiting if shard_of(job_id) == number] for number in (0, 1)
        )
        second.kill()
        with ShardedGateway(settings) as started:

            def done(job_ids: list[str]) -> bool:
                answers = (started.client.get(f"/v1/jobs/{job_id}") for job_id in job_ids)
                return all(answer.json()["status"] == "done" for answer in answers)

            async with sharded_worker(own, settings):
                await wait_until(lambda: done(first), "the jobs of the first shard")
                page = started.client.get("/v1/jobs", params={"limit": 100}).json()
                assert page["incomplete"] == [1]
                assert {job["job_id"] for job in page["jobs"]} == {*first}
                second.start()
                await wait_until(lambda: done(later), "the jobs of the second")
                events = started.client.get(f"/v1/jobs/{later[0]}/events").text
                assert events.count("event: done") == 1


@clause("G-4")
@pytest.mark.usefixtures("product_limits")
def test_g04_a_gateway_does_not_wait_for_each_silent_shard_in_turn(
    server: LocalValkey, others: LocalValkey
) -> None:
    """Regression: with a dozen, its start took longer than the limit of this gateway's start."""
    with Proxy(others.port) as proxy:
        later = {number: f"{proxy.url(others.url)[:-1]}{number}" for number in range(1, 13)}
        urls = ShardList(0, {0: server.url, **later})
        proxy.silence()
        with ShardedGateway(sharded(server.url, urls, shard_by="job")) as started:
            job_id = str(started.submit()["job_id"])
            assert not shard_of(job_id)
            proxy.heal()
            proxy.cut()
            wait_until_sync(
                lambda: not started.client.get("/v1/jobs").json().get("incomplete"),
                "the silent shards",
            )


@clause("G-21")
def test_g21_doctor_checks_the_server_of_each_shard(
    server: LocalValkey, others: LocalValkey, tmp_path: Path
) -> None:
    env = {
        "JOBWIRE_DATA_DIR": str(tmp_path),
        "JOBWIRE_JOBS_SHARDS": f"0={server.url},1={others.url}",
        "JOBWIRE_JOBS_DURABILITY": "disk",
        "JOBWIRE_SYSTEMS": "jobs",
    }

    def doctor() -> str:
        return jobwire("doctor", cwd=tmp_path, env=env).stdout

    where = f"127.0.0.1:{others.port}"
    with plain_client(server) as first, plain_client(others) as second:
        first.config_set("appendfsync", "always")
        assert "shard 1: appendfsync of the server is everysec" in doctor()
        second.config_set("appendfsync", "always")
        assert f"at {where}" in doctor()
        assert "fault" not in doctor()
        second.config_set("maxmemory-policy", "allkeys-lru")
        assert f"{where}: maxmemory-policy is allkeys-lru" in doctor()
        second.config_set("maxmemory-policy", "noeviction")
        for plain in (first, second):
            plain.config_set("appendfsync", "everysec")


@clause("G-4")
async def test_g04_cron_entries_are_in_the_first_shard(server: LocalValkey, plain: Plain) -> None:
    own = App("echoes")
    own.cron("0 3 * * *", name="nightly", payload={"night": True})(own.handler("echo")(echo))
    settings = sharded(server.url, 4, shard_by="job")
    with ShardedGateway(settings) as started:
        async with sharded_worker(own, settings):
            await wait_until(
                lambda: bool(started.client.get("/v1/crons").json()["crons"]), "the entry"
            )
            run = partial(started.client.post, "/v1/crons/nightly/run")
            answer = await asyncio.to_thread(run, headers={"prefer": "wait=30"})
            assert answer.json()["status"] == "done"
            stored = cast("list[str]", plain.keys("*jobs:cron:*"))
            assert stored == [f"{{{TAGS[0]}}}:jobs:cron:nightly"]
