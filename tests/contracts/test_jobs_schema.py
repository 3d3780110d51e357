"""`jobwire schema`: messages on the wire fit the schema of the contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import jsonschema
import pytest
from jsonschema.protocols import Validator

from jobwire.job.messages import Canceled, Done, Failed, JobError, Report, RetryLater
from jobwire.programs.schema import definition_of
from jobwire.systems.jobs import contract
from jobwire.systems.jobs.schema import WireSchema
from jobwire.systems.jobs.schema_documents import schema
from tests.cli.runner import jobwire
from tests.support import clause
from tests.support.jobs_http import JsonObject, ServedJobs
from tests.support.raw import Raw
from tests.support.streams import StreamsLab


@pytest.fixture(scope="module")
def whole() -> WireSchema:
    return schema()


def validator(whole: WireSchema, name: str) -> Validator:
    found = definition_of(name, whole)
    assert found is not None
    return jsonschema.Draft202012Validator(found)


@clause("J-2", "J-3", "J-4", "J-6")
async def test_the_keys_of_every_lifecycle_fit_their_schema(
    served: ServedJobs, lab: StreamsLab, raw: Raw, whole: WireSchema
) -> None:
    worker = await lab.worker("chat")
    headers = {"idempotency-key": "schema", "content-type": "application/json"}
    body = '{"task":"chat","payload":{},"max_attempts":2,"timeout_s":1.5}'
    for number in range(4):
        key = {**headers, "idempotency-key": f"schema-{number}"}
        assert served.client.post("/v1/jobs", content=body, headers=key).status_code == 202
    for _, entry in raw.entries("jobs:stream"):
        validator(whole, "queue_entry").validate(entry)
    taken = await worker.take(4)
    await worker.report([(leased, Report("progress", '{"percent":5}')) for leased in taken])
    error = JobError("no_such_city", "there is none", partial_json='{"text":"half"}')
    outcomes = [Done("1"), Failed(error), Canceled('"half"'), RetryLater(60, error)]
    await worker.settle(list(zip(taken, outcomes, strict=True)), 0)
    for leased in taken:
        fields = raw.fields(f"job:{leased.job.id}")
        validator(whole, "job_hash").validate(fields)
        if fields["error"]:
            validator(whole, "error").validate(json.loads(fields["error"]))
        validator(whole, "progress").validate(json.loads(fields["progress"]))
        for _, event in raw.entries(f"job:{leased.job.id}:events"):
            validator(whole, "event_entry").validate(event)

    with served.events(taken[1].job.id) as events:
        for seen in events.rest()[1:]:
            validator(whole, "event").validate(seen.data)
            if seen.name == "progress":
                invalid = {**cast(JsonObject, seen.data), "data": {"percent": 101}}
                assert not validator(whole, "event").is_valid(invalid)


def test_each_part_is_a_schema(whole: WireSchema) -> None:
    for name in whole["$defs"]:
        jsonschema.Draft202012Validator.check_schema(validator(whole, name).schema)


@clause("J-3")
def test_every_contract_constant_is_in_the_schema(whole: WireSchema) -> None:
    hash_ = cast(JsonObject, whole["$defs"]["job_hash"])
    assert set(cast(JsonObject, hash_["properties"])) == {*contract.Field, *contract.Extra}
    assert hash_["required"] == list(contract.Field)
    entry = cast(JsonObject, whole["$defs"]["queue_entry"])
    assert entry["required"] == list(contract.EntryField)
    assert not validator(whole, "queue_entry").is_valid({"job_id": "x", "task": "y"})
    payloads = [name for name in whole["$defs"] if name.startswith("payload.")]
    assert payloads == [f"payload.{task}" for task in contract.SOURCE_TASKS]
    for name in payloads:
        (example,) = cast("list[JsonObject]", whole["$defs"][name]["examples"])
        validator(whole, name).validate(example)


@clause("O-2")
def test_the_command_prints_the_schema_or_one_definition(tmp_path: Path, whole: WireSchema) -> None:
    done = jobwire("schema", cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)) == (0, whole)
    part = json.loads(jobwire("schema", "payload.chat", cwd=tmp_path).stdout)
    assert part["$id"] == "urn:jobwire:schema:streams:payload.chat"
    wrong = jobwire("schema", "payload.chta", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "did you mean 'payload.chat'?" in wrong.stderr
