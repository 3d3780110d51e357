"""J-4, J-5, J-6: fields of events, transitions of a status, content of an error."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from jobwire.job.messages import (
    Canceled,
    Done,
    Failed,
    JobError,
    Released,
    RenewAnswer,
    Report,
    ReportAnswer,
    RetryLater,
)
from jobwire.systems.jobs import contract
from jobwire.valkey import Connection
from tests.support import clause
from tests.support.raw import Raw
from tests.support.streams import StreamsLab

ERROR = JobError("no_such_city", "there is no city of that name")
TRANSIENT = JobError("handler_error", "the handler failed", retryable=True)


# ── J-4, J-5, J-6 ────────────────────────────────────────────────────────────────────────────────


@clause("J-4")
async def test_j04_events_have_four_fields_and_cover_every_transition(
    lab: StreamsLab, raw: Raw
) -> None:
    worker, leased = await lab.start()
    await worker.report(
        [
            (leased, Report("progress", '{"percent":50,"message":"half"}', number=1)),
            (leased, Report("token", '{"text":"ab"}', "chat.generate", 2)),
        ]
    )
    await worker.settle([(leased, RetryLater(0, TRANSIENT))], 0)
    (again,) = await worker.take(1)
    await worker.settle([(again, Done("1"))], 0)

    events = [fields for _, fields in raw.entries(f"job:{leased.job.id}:events")]
    for event in events:
        assert list(event) == ["type", "ts", "step", "data"]
        assert len(event["ts"]) == 13
        json.loads(event["data"])
    assert [(event["type"], event["step"], json.loads(event["data"])) for event in events] == [
        ("queued", "gateway.enqueue", {}),
        ("running", "worker.start", {"attempt": 1}),
        ("progress", "worker.report", {"percent": 50, "message": "half"}),
        ("token", "chat.generate", {"text": "ab"}),
        (
            "retrying",
            "worker.retry",
            {
                "attempt": 1,
                "delay_ms": 0,
                "error": {"code": "handler_error", "message": "the handler failed"},
            },
        ),
        ("running", "worker.start", {"attempt": 2}),
        ("done", "worker.settle", {}),
    ]
    assert raw.field(f"job:{leased.job.id}", "progress") == '{"percent":50,"message":"half"}'


@clause("J-4")
@pytest.mark.parametrize("kind", ["done", "error", "canceled", "hello", "gap", "Bad", "", "a b"])
async def test_j04_a_report_of_a_reserved_type_is_dropped(
    lab: StreamsLab, raw: Raw, kind: str
) -> None:
    worker, leased = await lab.start()
    before = raw.length(f"job:{leased.job.id}:events")
    batch = [(leased, Report(kind, "{}", number=1)), (leased, Report("log", "{}", number=2))]
    assert await worker.report(batch) == [ReportAnswer.DROPPED, ReportAnswer.WRITTEN]
    assert raw.length(f"job:{leased.job.id}:events") == before + 1
    await worker.settle([(leased, Done("1"))], 0)


@clause("J-4")
async def test_j04_data_of_the_maximum_size_is_accepted(lab: StreamsLab) -> None:
    worker, leased = await lab.start()
    fits = json.dumps("é" * ((contract.MAX_EVENT_BYTES - 2) // 2), ensure_ascii=False)
    assert len(fits.encode()) == contract.MAX_EVENT_BYTES
    batch = [(leased, Report("log", fits)), (leased, Report("log", fits.replace('"', '"x', 1)))]
    assert await worker.report(batch) == [ReportAnswer.WRITTEN, ReportAnswer.DROPPED]
    await worker.settle([(leased, Done("1"))], 0)


@clause("J-4")
async def test_j04_events_are_bounded_and_include_the_terminal_event(
    connection: Connection, raw: Raw
) -> None:
    async with StreamsLab(connection, max_events=10) as lab:
        worker, leased = await lab.start()
        key = f"job:{leased.job.id}:events"
        batch = [(leased, Report("log", str(n), number=n)) for n in range(1, 21)]
        answers = await worker.report(batch)
        assert answers == [ReportAnswer.WRITTEN] * 7 + [ReportAnswer.DROPPED] * 13
        for _ in range(4):
            await worker.settle([(leased, RetryLater(0, TRANSIENT))], 0)
            (leased,) = await worker.take(1)
            assert raw.length(key) <= 10
        await worker.settle([(leased, Done("1"))], 0)
        assert raw.length(key) <= 10
        assert raw.last(key)["type"] == "done"


@clause("J-4")
async def test_j04_a_later_attempt_evicts_reports_of_earlier_ones(
    connection: Connection, raw: Raw
) -> None:
    """An attempt with endless reports does not suppress those of later attempts; state events
    always fit."""
    async with StreamsLab(connection, max_events=1000) as lab:
        worker, leased = await lab.start()
        key = f"job:{leased.job.id}:events"
        for attempt in (1, 2, 3):
            batch = [(leased, Report("log", str(attempt), number=n)) for n in range(1, 1001)]
            answers = await worker.report(batch)
            assert raw.length(key) == 900, "reports stop 100 before the limit"
            written = answers.count(ReportAnswer.WRITTEN)
            assert answers == [ReportAnswer.WRITTEN] * written + [ReportAnswer.DROPPED] * (
                1000 - written
            )
            reported = [fields["data"] for _, fields in raw.entries(key) if fields["type"] == "log"]
            assert reported == [str(attempt)] * 898
            assert written == 898
            await worker.settle([(leased, RetryLater(0, TRANSIENT))], 0)
            (leased,) = await worker.take(1)
        await worker.settle([(leased, Done("1"))], 0)
        assert raw.last(key)["type"] == "done"


@clause("J-4", "J-5")
async def test_j04_nothing_is_appended_after_a_terminal_event(lab: StreamsLab, raw: Raw) -> None:
    worker, leased = await lab.start()
    await worker.settle([(leased, Done('"first"'))], 0)
    key = f"job:{leased.job.id}"
    hash_before, events_before = raw.fields(key), raw.entries(f"{key}:events")

    assert await worker.report([(leased, Report("log", "1"))]) == [ReportAnswer.LOST]
    for outcome in (Failed(ERROR), Canceled(), RetryLater(0, TRANSIENT), Released()):
        await worker.settle([(leased, outcome)], 0)
    await lab.queue.cancel(leased.job.id)
    renewer = worker.lease_renewer()
    assert renewer.renew([leased]) == [RenewAnswer.ENDED]
    renewer.close()
    raw.add("jobs:stream", {"job_id": leased.job.id, "task": "echo", "payload": "{}"})
    assert await worker.take(1) == []
    await lab.sweep()

    assert raw.fields(key) == hash_before
    assert raw.entries(f"{key}:events") == events_before


@clause("J-5")
async def test_j05_status_transitions(lab: StreamsLab, raw: Raw) -> None:
    worker, leased = await lab.start()
    seen = [raw.field(f"job:{leased.job.id}", "status")]
    for outcome in (RetryLater(0, TRANSIENT), Released()):
        await worker.settle([(leased, outcome)], 0)
        seen.append(raw.field(f"job:{leased.job.id}", "status"))
        (leased,) = await worker.take(1)
        seen.append(raw.field(f"job:{leased.job.id}", "status"))
    await worker.settle([(leased, Failed(ERROR))], 0)
    seen.append(raw.field(f"job:{leased.job.id}", "status"))
    assert seen == ["running", "queued", "running", "queued", "running", "error"]


@clause("J-6")
async def test_j06_an_error_is_one_object_in_hash_and_event(lab: StreamsLab, raw: Raw) -> None:
    worker, leased = await lab.start()
    error = JobError("no_such_city", "no \ud800 city", False, '{"text":"so far"}', "Traceback …")
    await worker.settle([(leased, Failed(error))], 0)
    found = raw.fields(f"job:{leased.job.id}")
    assert json.loads(found["error"]) == {
        "code": "no_such_city",
        "message": "no ? city",
        "retryable": False,
        "attempt": 1,
        "partial": {"text": "so far"},
    }
    event = raw.last(f"job:{leased.job.id}:events")
    assert (event["type"], event["data"]) == ("error", found["error"])
    assert found["result"] == ""
    assert "Traceback" not in found["error"] + event["data"]


EXCEPTION = JobError("handler_error", "failed", True, "", "Traceback é \ud800", "KeyError", "'a'")
EXTRAS = ("exception_type", "exception_message", "traceback")


@clause("J-55")
async def test_j55_an_exception_is_stored_apart_from_the_error(lab: StreamsLab, raw: Raw) -> None:
    worker, leased = await lab.start()
    await worker.settle([(leased, RetryLater(0, EXCEPTION))], 0)
    key = f"job:{leased.job.id}"
    expected = ["KeyError", "'a'", "Traceback é ?"]
    assert [raw.field(key, name) for name in EXTRAS] == expected, "after an attempt"
    (again,) = await worker.take(1)
    later = replace(EXCEPTION, cause_text="'b'", detail="x" * 100_000)
    await worker.settle([(again, Failed(later))], 0)
    assert raw.field(key, "exception_message") == "'b'", "of the latest attempt"
    assert len(raw.field(key, "traceback") or "") == 16_384
    assert "KeyError" not in json.dumps([raw.field(key, "error"), raw.entries(f"{key}:events")])


@clause("J-55")
async def test_j55_a_setting_turns_stored_exceptions_off(connection: Connection, raw: Raw) -> None:
    async with StreamsLab(connection, store_tracebacks=False) as lab:
        worker, leased = await lab.start()
        await worker.settle([(leased, Failed(EXCEPTION))], 0)
        assert not set(EXTRAS) & set(raw.fields(f"job:{leased.job.id}"))


@clause("J-6")
async def test_j06_a_canceled_job_keeps_its_partial_result(lab: StreamsLab, raw: Raw) -> None:
    worker, leased = await lab.start()
    await worker.settle([(leased, Canceled('{"text":"so far"}'))], 0)
    found = raw.fields(f"job:{leased.job.id}")
    assert found["status"] == "canceled"
    assert json.loads(found["error"])["code"] == "canceled"
    assert json.loads(found["error"])["partial"] == {"text": "so far"}
