"""B-16: the official packages read everything that our worker writes, including extra fields."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop.bullmq_lab import LOCK_MS, Lab, Version
from tests.support import clause, wait_until_sync

WORKER: dict[str, Any] = {"lockDuration": LOCK_MS, "name": "w1"}
FAILURE: dict[str, Any] = {"reason": "no disk", "stack": "S"}


def ours(lab: Lab, op: str, **more: Any) -> Any:
    return lab.do_ours({"op": op, "queue": "q", "now": lab.now, "worker": WORKER, **more})


@pytest.mark.parametrize("version", [6, 5])
@clause("B-16", "B-7")
def test_b16_queue_events_of_the_official_package_read_everything(
    lab: Lab, version: Version
) -> None:
    lab.reset(extras=True, version=version)
    lab.on_ours("watch")
    try:
        opts = {"attempts": 2}
        ours(lab, "add", name="film", data={"n": 1}, opts=opts)
        ours(lab, "take", token="t")
        for value in (0, 25, {"scene": "é"}, [1], "text", None, True):
            ours(lab, "progress", id="1", value=value)
        ours(lab, "fail", id="1", token="t", **FAILURE)
        ours(lab, "take", token="t")
        ours(lab, "complete", id="1", token="t", value={"videoUrl": "https://x/é"})
        ours(lab, "add", name="film", data={}, opts={})
        ours(lab, "take", token="t")
        ours(lab, "fail", id="2", token="t", **FAILURE)

        def heard() -> list[str]:
            return [event["event"] for event in lab.on_ours("seen")]

        wait_until_sync(lambda: heard().count("drained") == 2, timeout_s=30)
        seen: list[dict[str, Any]] = lab.on_ours("seen")
        assert "ERROR" not in heard(), seen
        data = [event["data"] for event in seen if event["event"] == "progress"]
        assert data == [0, 25, {"scene": "é"}, [1], "text", None, True]
        (completed,) = [event for event in seen if event["event"] == "completed"]
        assert completed["returnvalue"] == {"videoUrl": "https://x/é"}
        (failed,) = [event for event in seen if event["event"] == "failed"]
        assert failed["failedReason"] == "no disk"
    finally:
        lab.on_ours("unwatch")


@pytest.mark.parametrize("version", [6, 5])
@clause("B-16", "B-5")
def test_b16_a_job_that_failed_once_here_is_finished_by_their_worker(
    lab: Lab, version: Version
) -> None:
    lab.reset(extras=True, version=version)
    ours(lab, "add", name="film", data={"n": 1}, opts={"attempts": 3, "backoff": 1000})
    ours(lab, "take", token="t")
    ours(lab, "progress", id="1", value=25)
    ours(lab, "fail", id="1", token="t", **FAILURE)
    lab.now += 1000
    assert lab.on_ours("take", token="u", worker=WORKER) == {"job": "1"}
    assert lab.on_ours("job", id="1") == {
        "id": "1",
        "name": "film",
        "data": {"n": 1},
        "progress": 25,
        "attemptsMade": 1,
        "attemptsStarted": 2,
        "failedReason": "no disk",
        "returnvalue": None,
    }
    lab.on_ours("fail", id="1", token="u", worker=WORKER, **FAILURE)
    lab.now += 2000
    assert ours(lab, "take", token="v") == {"job": "1"}
    lab.now += 1
    assert ours(lab, "complete", id="1", token="v", value="done") is None
    found = lab.on_ours("job", id="1")
    assert (found["attemptsMade"], found["returnvalue"]) == (3, "done")


@clause("B-16")
def test_b16_the_hash_never_has_attempts_made(lab: Lab) -> None:
    lab.reset(extras=True)
    ours(lab, "add", name="film", data={}, opts={"attempts": 2})
    ours(lab, "take", token="t")
    ours(lab, "fail", id="1", token="t", **FAILURE)
    ours(lab, "take", token="t")
    ours(lab, "complete", id="1", token="t", value=1)
    assert "attemptsMade" not in lab.ours.hgetall("bull:q:1")
