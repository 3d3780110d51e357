"""J-50, O-6: a caller's JSON Schema reads nothing and blocks no other job, as attacks over HTTP.

Regression: `response_format` was compiled with the library's own retriever. A reference to a file
or a URL was fetched, members of the document were quoted in the error, and the worker stood while
a silent host was asked. A schema of 100 bytes a line could keep the worker's event loop for hours.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from jobwire.handlers.llm import LlmSettings
from jobwire.job.messages import JobId
from jobwire.local import LocalValkey
from tests.handlers.llm.local_worker import Fleet, StartFleet
from tests.handlers.llm.upstream import Upstream, says
from tests.support import clause
from tests.support.jobs_http import ServedJobs

JsonObject = dict[str, Any]
SECRET = "swordfish-8841"


@pytest.fixture
def served(valkey: LocalValkey) -> Iterator[ServedJobs]:
    with ServedJobs(valkey.url) as started:
        yield started


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    """A file of the worker's machine, such as `endpoints.json`."""
    file = tmp_path / "endpoints.json"
    file.write_text(json.dumps({"password": {"const": SECRET}, "key": SECRET, "type": "object"}))
    return file


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A host that answers nothing. `accept` raises BlockingIOError while there is no connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def chat(schema: object) -> JsonObject:
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    return {"prompt": "Hi", "response_format": form}


def submitted(served: ServedJobs, payload: JsonObject) -> JobId:
    return JobId(str(served.submit("chat", payload)["job_id"]))


async def ended(fleet: Fleet, served: ServedJobs, payload: JsonObject) -> str:
    """Everything that the caller can read about the job: its answer and its events."""
    job_id = submitted(served, payload)
    await fleet.end(job_id)
    answer = served.client.get(f"/v1/jobs/{job_id}").json()
    return json.dumps([answer, [event.data for event in fleet.events(job_id)]])


def exponential(levels: int) -> JsonObject:
    """Small, flat, and evaluated 2 ** levels times."""
    double = {f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(levels)}
    return {"$defs": {**double, f"l{levels}": {"type": "object"}}, "$ref": "#/$defs/l0"}


def alternatives(count: int) -> JsonObject:
    """Each of `count` alternatives has `count` alternatives, and none matches."""
    inner = {"oneOf": [{"required": [str(n)]} for n in range(count)]}
    return {"$defs": {"inner": inner}, "oneOf": [{"$ref": "#/$defs/inner"}] * count}


REFERENCES = [
    '{"$ref": "FILE"}',
    '{"$ref": "FILE#/password"}',
    '{"$ref": "FILE#/key"}',
    '{"$id": "FILE", "properties": {"a": {"$ref": "endpoints.json#/password"}}}',
    '{"$schema": "FILE"}',
    '{"properties": {"a": {"anyOf": [{"$ref": "FILE#/password"}]}}, "required": ["a"]}',
    '{"$dynamicRef": "FILE#/password"}',
    '{"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": "FILE"}',
    '{"$ref": "URL"}',
    '{"$schema": "URL"}',
    '{"$id": "URL", "$ref": "b.json"}',
    '{"$schema": "http://json-schema.org/draft-07/schema#", "items": {"$ref": "URL#/x"}}',
    '{"$ref": "https://json-schema.org/draft/2020-12/nowhere"}',
]
"""Schemas that name a document; FILE and URL are replaced."""


@clause("J-50", "O-6")
async def test_j50_a_schema_that_refers_to_a_document_fetches_nothing(
    start: StartFleet, served: ServedJobs, secret_file: Path, listener: socket.socket
) -> None:
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/a.json"
    texts = [
        schema.replace("FILE", secret_file.as_uri()).replace("URL", url) for schema in REFERENCES
    ]
    async with Upstream(says('{"a": 1}')) as upstream:
        fleet = await start(LlmSettings(base_url=upstream.url, model="m"))
        seen = [await ended(fleet, served, chat(json.loads(text))) for text in texts]
    assert [text for text in seen if SECRET in text] == []
    with pytest.raises(BlockingIOError):
        listener.accept()
    accepted = [
        schema
        for schema, text in zip(REFERENCES, seen, strict=True)
        if '"invalid_payload"' not in text
    ]
    # This keyword refers to the schema that it is in, whatever its value is.
    assert accepted == [schema for schema in REFERENCES if "$recursiveRef" in schema]
    assert len(upstream.requests) == len(accepted)


@clause("J-50", "O-6")
async def test_j50_the_openai_front_quotes_no_file(
    start: StartFleet, served: ServedJobs, secret_file: Path
) -> None:
    async with Upstream(says('{"a": 1}')) as upstream:
        await start(LlmSettings(base_url=upstream.url, model="m"))
        payload = chat({"properties": {"a": {"$ref": f"{secret_file.as_uri()}#/password"}}})
        body: dict[str, Any] = {
            "model": "m",
            "messages": [{"role": "user", "content": "Hi"}],
            "response_format": payload["response_format"],
        }
        async with httpx.AsyncClient(base_url=served.url, timeout=60) as client:
            answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert SECRET not in answer.text
    assert "other document" in answer.json()["error"]["message"]


@clause("J-50", "O-6")
@pytest.mark.parametrize(
    ("schema", "reasons"),
    [
        (exponential(60), ["takes too long"]),
        (alternatives(1200), ["takes too long", "does not fit the schema at this place"]),
    ],
    ids=["exponential", "alternatives"],
)
async def test_j50_a_costly_schema_ends_its_own_job_and_delays_no_other(
    start: StartFleet, served: ServedJobs, schema: JsonObject, reasons: Sequence[str]
) -> None:
    async with Upstream(says('{"a": 1}')) as upstream:
        fleet = await start(LlmSettings(base_url=upstream.url, model="m"))
        costly = submitted(served, chat(schema))
        other = submitted(served, {"prompt": "Hi"})
        assert (await fleet.end(other))["status"] == "done"
        assert fleet.hash(costly)["status"] == "running"
        ended = await fleet.end(costly)
    assert json.loads(ended["error"])["code"] == "output_invalid"
    assert any(reason in ended["error"] for reason in reasons)


@clause("J-50", "O-6")
@pytest.mark.parametrize(
    ("pattern", "value"),
    [("^(a+)+$", "a" * 40 + "!"), ("^(a|a)*$", "a" * 40 + "!")],
)
async def test_j50_a_pattern_is_matched_in_linear_time(
    start: StartFleet, served: ServedJobs, pattern: str, value: str
) -> None:
    async with Upstream(says(json.dumps({"a": value}))) as upstream:
        fleet = await start(LlmSettings(base_url=upstream.url, model="m"))
        seen = await ended(fleet, served, chat({"properties": {"a": {"pattern": pattern}}}))
    assert '"output_invalid"' in seen
    assert "takes too long" not in seen


@clause("J-50")
@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "objekt"}, "[\\'type\\']: "),
        ({"pattern": "(?=a)b"}, "[\\'pattern\\']: "),
        ({"pattern": "((a{100}){100}){100}"}, "[\\'pattern\\']: "),
        ({"$ref": "#/$defs/missing"}, "does not exist"),
        ({"enum": [*range(30_000)]}, "has more than 20000 members and items"),
    ],
)
async def test_j50_an_unusable_schema_is_refused_before_the_model_is_asked(
    start: StartFleet, served: ServedJobs, schema: JsonObject, reason: str
) -> None:
    async with Upstream(says("{}")) as upstream:
        fleet = await start(LlmSettings(base_url=upstream.url, model="m"))
        job_id = submitted(served, chat(schema))
        error = json.loads((await fleet.end(job_id))["error"])
    assert error["code"] == "invalid_payload"
    assert reason.replace("\\", "") in error["message"]
    assert upstream.requests == []


@clause("J-50")
@pytest.mark.parametrize("refers", [False, True], ids=["plain", "with references"])
async def test_j50_an_answer_is_checked_and_its_values_are_not_quoted(
    start: StartFleet, served: ServedJobs, refers: bool
) -> None:
    """Schemas without references are checked on the loop, others in a process."""
    tree: JsonObject = {"properties": {"name": {"type": "string"}}, "required": ["name"]}
    schema: JsonObject = {"properties": {"tree": tree}}
    if refers:
        tree["properties"] = {**tree["properties"], "child": {"$ref": "#/$defs/tree"}}
        schema = {"properties": {"tree": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": tree}}
    good = {"tree": {"name": "a", "child": {"name": "b"}}}
    bad = {"tree": {"name": 8841, "child": {"name": "b"}}}
    async with Upstream(says(json.dumps(bad)), says(json.dumps(good))) as upstream:
        fleet = await start(LlmSettings(base_url=upstream.url, model="m"))
        job_id = submitted(served, chat(schema))
        ended = await fleet.end(job_id)
        repair = upstream.requests[1].body["messages"][-1]["content"]
    assert json.loads(json.loads(ended["result"])["text"]) == good
    assert "['tree']['name']: value is not of type \"string\"" in repair


@clause("J-50")
async def test_j50_an_answer_that_is_nested_too_deeply_is_not_json(
    start: StartFleet, served: ServedJobs
) -> None:
    """Regression: it was a crash of the handler, so the model was asked again for each attempt."""
    async with Upstream(says("[" * 5000 + "]" * 5000)) as upstream:
        fleet = await start(LlmSettings(base_url=upstream.url, model="m"))
        seen = await ended(fleet, served, chat({"type": "array"}))
    assert '"output_invalid"' in seen
    assert "it is not JSON" in seen
    assert len(upstream.requests) == 2
