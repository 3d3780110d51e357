"""J-30: a foreign worker that creates no group can read as soon as a gateway of ours has
started."""

from __future__ import annotations

from tests.fleet.runner import Fleet
from tests.support import clause
from tests.support.raw import Raw
from tests.support.servers import plain_client


@clause("J-30", "J-39")
def test_j30_the_gateway_creates_the_group_at_start(own_fleet: Fleet) -> None:
    own_fleet.start_gateway()
    with own_fleet.client() as client, plain_client(own_fleet.valkey) as plain:
        job = client.submit("chat", {})
        raw = Raw(plain)
        (entry,) = raw.read("jobs:stream", "foreign-1")
        assert raw.entries("jobs:stream")[0] == (
            entry,
            {"job_id": job.job_id, "task": "chat", "payload": "{}"},
        )
