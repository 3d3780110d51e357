"""What `api/queues.py`, `queue_jobs.py` and `flows.py` write again is what the wire has."""

from __future__ import annotations

from typing import get_args

import msgspec

from jobwire.api import flows, queue_jobs, queues
from jobwire.systems.queues import checks, contract
from jobwire.systems.queues.events import QueueEvent


def test_the_words_and_limits_of_the_api_are_those_of_the_wire() -> None:
    states = tuple(map(str, contract.COLLECTIONS))
    assert states == queue_jobs.STATES
    assert set(get_args(queue_jobs.StateName)) == set(states)
    assert queue_jobs.MAX_BULK_JOBS == contract.MAX_BULK_JOBS
    assert queue_jobs.MAX_BULK_BYTES == contract.MAX_BULK_BYTES
    assert flows.MAX_FLOW_JOBS == contract.MAX_FLOW_JOBS


def test_the_problems_of_the_api_are_the_refusals_of_the_wire() -> None:
    kinds = {
        checks.BAD_JOB: queues.BAD_JOB,
        checks.BAD_QUEUE_NAME: queues.BAD_QUEUE_NAME,
        checks.UNKNOWN_STATE: queues.UNKNOWN_STATE,
        checks.BULK_TOO_LARGE: queue_jobs.BULK_TOO_LARGE,
        checks.SCHEDULED: queue_jobs.SCHEDULED,
    }
    for code, kind in kinds.items():
        assert (kind.code, kind.status) == (code, checks.refuse("x", code).status)


def test_an_event_has_the_members_that_the_api_documents() -> None:
    event = QueueEvent("5-0", ["event", "progress", "jobId", "17", "data", "25"])
    members: dict[str, object] = msgspec.json.decode(event.body)
    assert tuple(members) == queues.QueueEventData.__struct_fields__
    assert members == {"event": "progress", "job_id": "17", "ts": 5, "fields": {"data": 25}}
