"""J-36: a job that waits for a slot of its own handler is waiting, for everyone who looks."""

from __future__ import annotations

from pathlib import Path

from tests.fleet.runner import Fleet
from tests.support import clause, wait_until_sync
from tests.support.servers import plain_client

JOBS = 12
"""More than the worker has slots."""


@clause("J-36")
def test_j36_jobs_of_a_handler_at_its_limit_wait_on_the_server(
    own_fleet: Fleet, tmp_path: Path
) -> None:
    own_fleet.start_gateway()
    own_fleet.start_worker("tests.fleet.limited_app:app")
    gates = [tmp_path / f"gate-{number}" for number in range(JOBS)]
    with own_fleet.client() as client, plain_client(own_fleet.valkey) as plain:
        jobs = [client.submit("narrow", {"gate": str(gate), "to": 1}).job_id for gate in gates]

        def statuses() -> list[str]:
            return [client.get(job_id).status for job_id in jobs]

        wait_until_sync(lambda: "running" in statuses(), "the first of them to run")
        # Jobs of other handlers run all the same.
        counted = client.submit("wide", {"to": 1}).job_id
        assert client.wait(counted, 60).result == {"counted": 1}
        assert statuses() == ["running", *["queued"] * (JOBS - 1)]
        assert [plain.xlen(f"job:{job_id}:events") for job_id in jobs[1:]] == [1] * (JOBS - 1)
        waiting = [queue.waiting for queue in client.queues() if queue.waiting]
        assert waiting == [JOBS - 1]
        for job_id, gate in zip(jobs, gates, strict=True):
            gate.write_text("open\n")
            client.wait(job_id)
        # In the order of their submission, each after the end of the one before.
        times = [
            {event.type: event.ts for event in client.events(job_id)}[kind]
            for job_id in jobs
            for kind in ("running", "done")
        ]
        assert times == sorted(times)
