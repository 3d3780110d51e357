"""R-8, J-9: the reports of a handler reach the wire despite drains and refused writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import cast

import pytest

from jobwire.local import LocalValkey
from tests.stories.site import Site
from tests.support import Plain, clause, wait_until, wait_until_sync
from tests.support.servers import plain_client

Refuse = Callable[[Plain], Callable[[], object]]


async def story(site: Site, job_id: str) -> list[str | int]:
    """The types of a job's events, in order; of a token its number."""
    rows = await site.connection.call("XRANGE", site.keys.events(job_id), "-", "+")
    found: list[str | int] = []
    for _, flat in cast("list[tuple[str, list[str]]]", rows):
        event = dict(zip(flat[::2], flat[1::2], strict=True))
        is_token = event["type"] == "token"
        found.append(json.loads(event["data"])["n"] if is_token else event["type"])
    return found


@clause("R-8", "J-40")
async def test_r08_after_a_drain_every_report_of_the_next_run_is_written(
    valkey: LocalValkey, tmp_path: Path
) -> None:
    """Regression: a release takes the delivery back. The next run had the same delivery number, so
    its first reports counted as repeats of the first run's, and were answered as written."""
    async with Site(valkey.url, tmp_path, lease_s=3600) as site:
        victim = await site.ready(JOBWIRE_WORKER_DRAIN="200ms")
        job = await site.submit("tokens", count=30, pause_at=24)

        async def paused() -> bool:
            return 23 in await story(site, job)

        await wait_until(paused)
        victim.terminate()
        assert victim.wait() == 0
        site.gate.touch()
        async with site.survivor():
            await site.until(job, "done")
        first = ["queued", "running", *range(24), "queued"]
        assert await story(site, job) == [*first, "running", *range(30), "done"]
        assert (await site.fields(job))["deliveries"] == "1"


def readonly(plain: Plain) -> Callable[[], object]:
    """The server is a replica of a primary that does not exist, until it is promoted."""
    plain.call("REPLICAOF", "127.0.0.1", "1")
    return lambda: plain.call("REPLICAOF", "NO", "ONE")


def misconf(plain: Plain) -> Callable[[], object]:
    """The server cannot save its data: a folder has the name of its file."""
    place = plain.config_get("dir", "dbfilename")
    folder = Path(str(place["dir"]), str(place["dbfilename"]))
    folder.unlink(missing_ok=True)
    (folder / "in the way").mkdir(parents=True)
    plain.config_set("save", "3600 1")

    def refuses() -> bool:
        return plain.info("persistence")["rdb_last_bgsave_status"] == "err"

    def save() -> None:
        plain.call("BGSAVE")
        wait_until_sync(lambda: not plain.info("persistence")["rdb_bgsave_in_progress"])

    save()
    assert refuses()

    def repair() -> None:
        (folder / "in the way").rmdir()
        folder.rmdir()
        save()
        assert not refuses()

    return repair


def loading(plain: Plain) -> Callable[[], object]:
    """The server reads its data back, a key every 10 ms: it refuses until the delay is removed."""
    plain.call("DEBUG", "POPULATE", 3000, "filler", 1024)
    plain.config_set("loading-process-events-interval-bytes", 1024)
    plain.config_set("key-load-delay", 10_000)
    reload = Thread(target=plain.call, args=("DEBUG", "RELOAD"))
    reload.start()
    wait_until_sync(lambda: plain.info("persistence")["loading"] == 1, "the server to load")

    def finish() -> None:
        assert plain.info("errorstats")["errorstat_LOADING"]["count"] > 0
        plain.config_set("key-load-delay", 0)
        reload.join()

    return finish


@clause("J-9", "R-8")
@pytest.mark.parametrize("refuse", [readonly, loading, misconf])
async def test_r08_reports_wait_while_the_server_refuses_to_write(
    own_valkey: LocalValkey, tmp_path: Path, refuse: Refuse
) -> None:
    """Only a full server may drop reports: these refusals end, and no watcher sees a gap. All slots
    are taken, so that no blocking read notices the refusal before the reports do."""
    async with Site(own_valkey.url, tmp_path, lease_s=3600) as site:
        with plain_client(own_valkey) as plain:
            async with site.survivor():
                jobs = [await site.submit("tokens", count=60, pause_at=30) for _ in range(4)]

                async def paused() -> bool:
                    return all([29 in await story(site, job) for job in jobs])

                await wait_until(paused)
                accept = refuse(plain)
                refused = plain.info("errorstats")
                site.gate.touch()
                await wait_until(lambda: plain.info("errorstats") != refused, "a refused report")
                accept()
                await site.until_all(jobs, "done")
        for job in jobs:
            assert await story(site, job) == ["queued", "running", *range(60), "done"]
