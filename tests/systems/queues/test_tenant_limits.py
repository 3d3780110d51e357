"""J-57: what a tenant may add to its queues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import httpx
import pytest

from jobwire.gateway.settings import GatewaySettings
from jobwire.local import LocalValkey
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.systems.queues.settings import QueuesSettings
from tests.support import clause, wait_until_sync
from tests.support.jobs_http import JsonObject, bearer, key, problem
from tests.systems.queues.served import ServedQueues

KEYS: Final = (
    key("acme", "submit", "read", tenant="acme"),
    key("globex", "submit", "read", tenant="globex"),
)
QUEUES: Final = QueuesSettings(tenants=("mail=acme", "more=acme", "video=globex"))
LARGE: Final[JsonObject] = {"name": "job", "data": {"text": "x" * 100_000}}
SMALL: Final[JsonObject] = {"name": "job", "data": {}}


@pytest.fixture
def served(valkey: LocalValkey) -> Iterator[ServedQueues]:
    """Each tenant may have ten open jobs, and four large ones."""
    limits = StreamsSettings(max_queue=20, tenant_max_bytes=450_000)
    with ServedQueues(valkey.url, QUEUES, GatewaySettings(keys=KEYS), limits=limits) as started:
        yield started


def add(served: ServedQueues, name: str, queue: str, body: object) -> httpx.Response:
    path = f"/v1/queues/{queue}/jobs"
    return served.client.post(path, json=body, headers=bearer(name))


@clause("J-57", "B-18")
def test_j57_one_tenant_cannot_fill_the_memory_through_its_queues(served: ServedQueues) -> None:
    """Regression: one submit key filled 300 MB in 14 s, and every other tenant got 503."""
    added = [add(served, "acme", queue, LARGE) for queue in ("mail", "more") for _ in range(2)]
    assert [answer.status_code for answer in added] == [201] * 4
    refused = problem(add(served, "acme", "mail", LARGE), 429, "queue_full")
    assert "bytes" in str(refused["detail"])
    flow = {**SMALL, "children": [LARGE]}
    path = "/v1/queues/mail/flows"
    problem(served.client.post(path, json=flow, headers=bearer("acme")), 429, "queue_full")
    assert add(served, "acme", "mail", SMALL).status_code == 201
    assert add(served, "globex", "video", LARGE).status_code == 201

    job_id = added[0].json()["jobs"][0]["id"]
    removed = served.client.delete(f"/v1/queues/mail/jobs/{job_id}", headers=bearer("acme"))
    assert removed.is_success
    wait_until_sync(
        lambda: add(served, "acme", "mail", LARGE).status_code == 201, "the bytes to be free"
    )


@clause("J-57", "B-18")
def test_j57_one_tenant_has_a_bounded_number_of_open_jobs_in_queues(served: ServedQueues) -> None:
    bulk = {"jobs": [{**SMALL, "opts": {"delay": 2_592_000_000}}] * 6}
    assert add(served, "acme", "mail", bulk).status_code == 201
    refused = problem(add(served, "acme", "more", bulk), 429, "queue_full")
    assert "open jobs" in str(refused["detail"])
    assert add(served, "globex", "video", bulk).status_code == 201


@clause("J-57", "B-18")
def test_j57_queues_share_the_rate_and_memory_limits(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("small")
    gateway = GatewaySettings(keys=KEYS[:1], submit_rate=300)
    with (
        LocalValkey(folder, extra=["maxmemory 12mb"]) as small,
        ServedQueues(small.url, QUEUES, gateway) as served,
    ):
        assert served.client.get("/readyz").json()["status"] == "ready"
        bulk = {"jobs": [LARGE] * 30}

        def answer() -> httpx.Response | None:
            given = add(served, "acme", "mail", bulk)
            return given if "memory is nearly full" in given.text else None

        refused = wait_until_sync(answer, "a refusal")
        assert refused is not None
        problem(refused, 503, "unavailable")
        assert served.client.get("/readyz").json()["status"] == "degraded"
        bulk = {"jobs": [SMALL] * 600}
        statuses = {add(served, "acme", "mail", bulk).status_code for _ in range(3)}
        assert 429 in statuses
