"""B-13: the payload of `video-generation` is checked where it is submitted, and is exported."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from click.testing import CliRunner

from jobwire.cli.schema import command
from jobwire.job.errors import RefusedError
from jobwire.systems.queues.add_batcher import Added
from jobwire.systems.queues.payloads import check_payload, payload_schema
from jobwire.systems.queues.queue import QueueProducer
from jobwire.valkey import Connection
from tests.support import Plain, clause

PAYLOAD: dict[str, Any] = {
    "videoId": "550e8400-e29b-41d4-a716-446655440000",
    "userId": "user-123",
    "script": {
        "title": "My Video",
        "scenes": [
            {"sceneNumber": 1, "duration": 5, "voiceover": "Welcome", "imagePrompt": "Sunset"}
        ],
    },
    "userImageUrls": ["https://example.com/img1.jpg"],
}


def changed(path: str, value: object) -> dict[str, Any]:
    payload = deepcopy(PAYLOAD)
    *steps, last = path.split(".")
    at: Any = payload
    for step in steps:
        at = at[int(step)] if step.isdecimal() else at[step]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return payload


@clause("B-13")
async def test_b13_the_example_of_the_document_is_accepted(
    connection: Connection, plain: Plain
) -> None:
    check = check_payload("video-generation")
    queue = QueueProducer(connection, "video-generation", check_data=check)
    answer = await queue.submit("video-generation", json.dumps(PAYLOAD))
    assert isinstance(answer, Added)
    assert json.loads(str(plain.hget("bull:video-generation:1", "data"))) == PAYLOAD


@clause("B-13")
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("videoId", None),
        ("userId", ""),
        ("script.title", None),
        ("script.scenes", []),
        ("script.scenes.0.duration", 0),
        ("script.scenes.0.duration", "5"),
        ("script.scenes.0.sceneNumber", 0),
        ("script.scenes.0.voiceover", None),
        ("script.scenes.0.imagePrompt", 7),
        ("userImageUrls", ["ftp://example.com/a"]),
        ("userImageUrls", ["javascript:alert(1)"]),
    ],
)
async def test_b13_an_invalid_payload_is_refused_and_nothing_is_written(
    connection: Connection, plain: Plain, path: str, value: object
) -> None:
    queue = QueueProducer(
        connection, "{video-generation}", check_data=check_payload("{video-generation}")
    )
    with pytest.raises(RefusedError, match="does not fit the schema"):
        await queue.submit("video-generation", json.dumps(changed(path, value)))
    assert plain.keys("*") == []


@clause("B-13")
def test_b13_the_schema_is_exported_and_names_all_four_members() -> None:
    printed = CliRunner().invoke(command, ["payload.video-generation"])
    assert printed.exit_code == 0, printed.output
    schema = json.loads(printed.output)
    assert schema == payload_schema("video-generation")
    properties = schema["$defs"]["VideoGeneration"]["properties"]
    assert set(properties) == {"videoId", "userId", "script", "userImageUrls"}


def test_a_queue_without_a_schema_accepts_any_json() -> None:
    assert check_payload("mail") is None
    assert payload_schema("mail") is None
