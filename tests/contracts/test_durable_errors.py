"""D-4a: errors of steps are recorded, on a real server, in the three kinds of handlers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.contracts import saga_handlers
from tests.contracts.saga_handlers import KINDS, QUEUE, paid
from tests.contracts.test_durable_steps import ended, submit
from tests.contracts.test_durable_waits import until_suspended, working
from tests.support import clause
from tests.support.raw import Raw
from tests.support.streams import StreamsLab

CAUGHT = ["first declines 500", 500, "first", "mail"]


@clause("D-4a")
@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("kind", KINDS)
async def test_d04a_what_a_handler_has_caught_once_it_catches_again(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str, once: bool
) -> None:
    """Across a wait, and across attempts that end with another error."""
    path = str(tmp_path / "paid")
    work = {"path": path, "once": once, "crash": 2}
    job_id = await submit(lab, kind, work, queue=QUEUE)
    async with working(lab, saga_handlers.app, QUEUE):
        await until_suspended(raw, job_id)
        await lab.queue.signal(job_id, "go", "1")
        assert (await ended(lab, job_id))["result"] == CAUGHT
    assert paid(path) == ["charge", "refund", "mail"]
    record = raw.fields(f"job:{job_id}:steps")
    _, _, error = json.loads(record["e:charge"])
    assert error["type"] == "tests.contracts.saga_handlers:Declined"
    assert (error["message"], error["attempt"]) == ("first declines 500", 1)
    done = [json.loads(e["data"]) for e in await lab.events(job_id) if e["type"] == "step_done"]
    assert [(each["name"], "failed" in each) for each in done][:2] == [
        ("charge", True),
        ("refund", False),
    ]
    assert ("s:charge" in record, "o:charge" in record) == (False, once)


@clause("D-4a", "D-5")
@pytest.mark.parametrize("cause", [False, True])
@pytest.mark.parametrize("kind", KINDS)
async def test_d04a_the_attempt_after_an_error_of_a_step_calls_it_again(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str, cause: bool
) -> None:
    path = str(tmp_path / "paid")
    work = {"path": path, "uncaught": 2, "cause": cause}
    job_id = await submit(lab, kind, work, queue=QUEUE)
    once = await submit(lab, kind, {**work, "path": f"{path}-once", "once": True}, queue=QUEUE)
    async with working(lab, saga_handlers.app, QUEUE):
        assert (await ended(lab, job_id))["result"] == "charge"
        assert (await ended(lab, once))["code"] == "step_interrupted"
    assert paid(path) == ["charge"] * 3
    assert paid(f"{path}-once") == ["charge"]
    assert list(raw.fields(f"job:{job_id}:steps")) == ["s:charge"]
