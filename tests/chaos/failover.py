"""F8: the primary dies and a replica takes over without the last writes.

Called by the runner after the jobs were collected and before the server is emptied. Jobs that the
replica has must end once; the others are gone with all their keys; new jobs are served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import httpx
from redis import RedisError

from jobwire.job.messages import Json
from jobwire.local import LocalValkey
from jobwire.local.valkey import ADMIN, PASSWORD_FILE
from tests.chaos.fleet import Fleet
from tests.chaos.history import TERMINAL
from tests.support import Proxy, wait_until
from tests.support.raw import Raw
from tests.support.servers import plain_client

_KNOWN = 20
_LATE = 20


async def fail_over(fleet: Fleet, folder: Path) -> list[str]:
    """Fail over to a replica; returns violations, one line each. The replica is the new server."""
    with Proxy(fleet.server.port) as link:
        replica = _replica(fleet.server, folder / "replica", link)
        replica.start()
        fleet.also_stop(replica)
        await wait_until(lambda: _synced(replica), "the replica to be in step", timeout_s=30)
        async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
            known = await _submit(client, fleet, _KNOWN, delay_s=4)
            await wait_until(lambda: _has(replica, known), "the replica to know them")
            link.silence()
            late = await _submit(client, fleet, _LATE, delay_s=0)
            await asyncio.to_thread(fleet.server.kill)
            with plain_client(replica) as plain:
                plain.replicaof("NO", "ONE")
            fleet.move_to(replica)
            wrong = await _ended(client, fleet, known, "known to the replica")
            wrong += await _ended(client, fleet, late, "unknown to the replica", may_be_gone=True)
            fresh = await _submit(client, fleet, 5, delay_s=0)
            wrong += await _ended(client, fleet, fresh, "submitted after the failover")
        return wrong


def _replica(primary: LocalValkey, folder: Path, link: Proxy) -> LocalValkey:
    """A copy that follows through `link`; programs reach it with the primary's password."""
    folder.mkdir()
    (folder / PASSWORD_FILE).write_text(primary.password)
    (folder / PASSWORD_FILE).chmod(0o600)
    login = urlsplit(primary.admin_url).password
    follow = [f"replicaof 127.0.0.1 {link.port}", f"masteruser {ADMIN}", f"masterauth {login}"]
    return LocalValkey(folder, admin=True, extra=["appendfsync always", *follow])


def _synced(replica: LocalValkey) -> bool:
    with plain_client(replica) as plain:
        replication = cast("dict[str, str]", plain.info("replication"))
        return replication.get("master_link_status") == "up"


def _has(replica: LocalValkey, job_ids: Sequence[str]) -> bool:
    with plain_client(replica) as plain:
        return Raw(plain).exists(*(f"job:{job_id}" for job_id in job_ids)) == len(job_ids)


async def _submit(
    client: httpx.AsyncClient, fleet: Fleet, count: int, *, delay_s: float
) -> list[str]:
    body = {
        "task": "work",
        "payload": {"steps": 2, "pause_s": 0.05, "fails": 0},
        "delay_s": delay_s,
    }

    async def accepted() -> str:
        try:
            response = await client.post(f"http://127.0.0.1:{fleet.ports[0]}/v1/jobs", json=body)
        except httpx.HTTPError:
            return ""
        return str(response.json()["job_id"]) if response.status_code == 202 else ""

    return [await wait_until(accepted, "a job to be accepted", timeout_s=60) for _ in range(count)]


async def _ended(
    client: httpx.AsyncClient,
    fleet: Fleet,
    job_ids: Sequence[str],
    which: str,
    *,
    may_be_gone: bool = False,
) -> list[str]:
    """Wait for the end of the jobs; returns violations."""
    wrong: list[str] = []
    for job_id in job_ids:
        states = [""]

        async def over(job_id: str = job_id, states: list[str] = states) -> bool:
            site = f"http://127.0.0.1:{fleet.ports[0]}/v1/jobs/{job_id}"
            try:
                response = await client.get(site)
            except httpx.HTTPError:
                return False
            body = cast("dict[str, Json]", response.json())
            states.append("gone" if response.status_code == 404 else str(body.get("status")))
            return states[-1] in TERMINAL or states[-1] == "gone"

        try:
            await wait_until(over, timeout_s=30)
        except AssertionError:
            wrong.append(f"{job_id}, {which}, is {states[-1] or 'not answered'}")
            continue
        if states[-1] == "gone":
            if not may_be_gone:
                wrong.append(f"{job_id}, {which}, is gone")
            continue
        wrong += _not_once(fleet, job_id, which)
    return wrong


def _not_once(fleet: Fleet, job_id: str, which: str) -> list[str]:
    try:
        with plain_client(fleet.server) as plain:
            kinds = [fields["type"] for _, fields in Raw(plain).entries(f"job:{job_id}:events")]
    except (RedisError, OSError) as error:
        return [f"{job_id}, {which}: {error!r}"]
    ends = [kind for kind in kinds if kind in TERMINAL]
    return [] if len(ends) == 1 and kinds[-1:] == ends else [f"{job_id}, {which}: {kinds}"]
