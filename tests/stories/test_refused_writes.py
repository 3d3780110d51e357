"""O-7: each way in which a server refuses writes, as the doctor and /readyz tell it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from jobwire.local import LocalValkey
from jobwire.valkey import Connection
from jobwire.valkey.health import HealthChecker
from tests.cli.runner import jobwire
from tests.stories.gateways import GatewayProgram, gateway
from tests.stories.test_reports import misconf
from tests.support import Plain, clause, wait_until_sync
from tests.support.servers import plain_client

Break = Callable[[Plain], object]


def setting(name: str, value: str) -> Break:
    return lambda plain: plain.config_set(name, value)


def command(*words: str) -> Break:
    return lambda plain: plain.call(*words)


def orphaned(plain: Plain) -> None:
    plain.config_set("replica-serve-stale-data", "no")
    plain.call("REPLICAOF", "127.0.0.1", "1")


CASES = {
    "full": (setting("maxmemory", "1"), "it has reached maxmemory"),
    "replica": (command("REPLICAOF", "127.0.0.1", "1"), "is a replica and accepts no writes"),
    "replicas": (setting("min-replicas-to-write", "1"), "than min-replicas-to-write"),
    "disk": (misconf, "cannot write to its disk and refuses writes: MISCONF"),
    "paused": (
        command("CLIENT", "PAUSE", "600000", "WRITE"),
        "they are paused, as by CLIENT PAUSE",
    ),
    "rights": (command("ACL", "SETUSER", "jobwire", "-xadd"), "may not write"),
}


def told_by_the_doctor(url: str, folder: Path) -> dict[str, str]:
    done = jobwire("doctor", "--valkey", url, cwd=folder)
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    return next(each for each in findings if each["check"] == "valkey writes")


def told_by_readyz(served: GatewayProgram) -> dict[str, str]:
    answer = httpx.get(f"{served.url}/readyz", timeout=30, trust_env=False)
    return next(part for part in answer.json()["parts"] if part["name"] == "valkey")


@clause("O-7")
@pytest.mark.parametrize("case", CASES)
def test_o7_a_refusal_of_writes_has_its_own_sentence(
    own_valkey: LocalValkey, tmp_path: Path, case: str
) -> None:
    break_it, sentence = CASES[case]
    with gateway(own_valkey.url) as served, plain_client(own_valkey) as plain:
        assert told_by_the_doctor(own_valkey.url, tmp_path)["verdict"] == "ok"
        assert told_by_readyz(served)["state"] == "ready"
        break_it(plain)

        def told() -> dict[str, str] | None:
            part = told_by_readyz(served)
            return part if sentence in part.get("note", "") else None

        part = wait_until_sync(told, "/readyz to say so")
        assert part is not None
        finding = told_by_the_doctor(own_valkey.url, tmp_path)
        if case == "paused":
            plain.call("CLIENT", "UNPAUSE")
        assert (part["state"], finding["verdict"]) == ("degraded", "fault")
        assert (part["note"], part["what_to_do"]) == (finding["found"], finding["fix"])


@clause("O-7")
async def test_o7_a_cluster_that_is_down_refuses_writes(tmp_path: Path) -> None:
    with LocalValkey(tmp_path / "node", admin=True, extra=["cluster-enabled yes"]) as node:
        async with Connection.open(node.url) as connection:
            refusal = await HealthChecker(connection).write_refusal("jobs:guard:writable")
        assert refusal is not None
        assert "slots have no primary" in refusal.found
        assert told_by_the_doctor(node.url, tmp_path)["found"] == refusal.found


@clause("O-7", "R-1")
def test_o7_programs_start_on_a_server_whose_disk_has_failed(own_valkey: LocalValkey) -> None:
    """It refuses PING, too."""
    with plain_client(own_valkey) as plain:
        repair = misconf(plain)
        with gateway(own_valkey.url) as served:
            assert "cannot write to its disk" in told_by_readyz(served)["note"]
            repair()


@clause("O-7")
async def test_o7_a_tried_write_leaves_nothing(connection: Connection, plain: Plain) -> None:
    assert await HealthChecker(connection).write_refusal("jobs:guard:writable") is None
    assert plain.call("EXISTS", "jobs:guard:writable") == 0
