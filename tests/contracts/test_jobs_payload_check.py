"""J-54: payloads are checked at submission against the schemas that workers have registered."""

from __future__ import annotations

import pytest

from jobwire.job.messages import Json, TaskDefinition
from jobwire.local import LocalValkey
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.settings import StreamsSettings
from tests.support import Fresh, clause, wait_until_sync
from tests.support.jobs_http import JsonObject, ServedJobs, problem
from tests.support.raw import Raw
from tests.support.streams import StreamsLab

WIDTH = '{"type":"object","properties":{"sizes":{"type":"array","items":{"type":"integer"}}}}'
NAMED = '{"type":"object","required":["name"]}'
WRONG: JsonObject = {"sizes": [1, "wide"]}


async def register(lab: StreamsLab, task: str, schema_json: str) -> StreamsEngine:
    """A worker whose task has this schema; it deregisters with the lab's others."""
    engine = await lab.worker("other")
    await engine.register([TaskDefinition(task, schema_json)], 1)
    return engine


@clause("J-54")
async def test_j54_a_payload_that_no_worker_accepts_is_refused_with_the_place(
    served: ServedJobs, lab: StreamsLab, raw: Raw, fresh: Fresh
) -> None:
    task = fresh("task")
    await register(lab, task, WIDTH)
    wrong: JsonObject = {"task": task, "payload": WRONG}
    found = problem(served.client.post("/v1/jobs", json=wrong), 422, "invalid_payload")
    assert str(found["detail"]).startswith("payload.sizes[1]: ")

    right: JsonObject = {"task": task, "payload": {"sizes": [1, 2]}}
    answer = served.client.post("/v1/jobs/batch", json={"jobs": [wrong, right]})
    refused, accepted = answer.json()["results"]
    assert (refused["status"], refused["problem"]["code"]) == (422, "invalid_payload")
    assert accepted["status"] == 202
    assert raw.length("jobs:stream") == 1


PART = """{"anyOf": [
    {"type": "object", "properties": {"is": {"const": "text"}, "text": {"type": "string"}}},
    {"type": "object", "properties": {"is": {"const": "picture"}, "url": {"type": "string"}}}
]}"""
UNION = f"""{{"type": "object", "additionalProperties": false, "properties": {{
    "size": {{"anyOf": [{{"type": "integer", "maximum": 9}}, {{"type": "null"}}]}},
    "parts": {{"oneOf": [{{"type": "string"}}, {{"type": "array", "items": {PART}}}]}}
}}}}"""


@clause("J-54")
async def test_j54_of_a_union_the_fault_is_that_of_the_branch_that_was_meant(
    served: ServedJobs, lab: StreamsLab, fresh: Fresh
) -> None:
    task = fresh("task")
    await register(lab, task, UNION)
    faults: list[tuple[JsonObject, str]] = [
        ({"sise": 1}, "payload: unknown field `sise`; did you mean `size`?"),
        ({"colour": 1}, "payload: unknown field `colour`; it takes: size, parts"),
        ({"size": 10}, "payload.size: value is greater than the maximum of 9"),
        ({"size": "large"}, 'payload.size: value is not of type "integer"'),
        ({"parts": 7}, 'payload.parts: value is not of type "string" or "array"'),
        ({"parts": [7]}, 'payload.parts[0]: value is not of type "object"'),
        (
            {"parts": [{"is": "picture", "url": 7}]},
            'payload.parts[0].url: value is not of type "string"',
        ),
        ({"parts": [{"is": "film"}]}, 'payload.parts[0].is: value is not one of "text", "picture"'),
    ]
    for payload, expected in faults:
        answer = served.client.post("/v1/jobs", json={"task": task, "payload": payload})
        assert problem(answer, 422, "invalid_payload")["detail"] == expected


@clause("J-54", "J-8")
async def test_j54_the_largest_integers_are_no_fault(
    served: ServedJobs, lab: StreamsLab, fresh: Fresh
) -> None:
    task = fresh("task")
    await register(lab, task, WIDTH)
    header = {"content-type": "application/json"}
    for number in ("9" * 4300, "-" + "9" * 4300):
        body = f'{{"task": "{task}", "payload": {{"sizes": [{number}]}}}}'
        assert served.client.post("/v1/jobs", content=body, headers=header).status_code == 202


@clause("J-54")
@pytest.mark.parametrize("other", ["", '{"type":"object"}'])
async def test_j54_a_payload_that_one_worker_of_two_accepts_is_accepted(
    served: ServedJobs, lab: StreamsLab, fresh: Fresh, other: str
) -> None:
    """A new version is deployed while workers of the old one still run."""
    task = fresh("task")
    body: JsonObject = {"task": task, "payload": WRONG}
    await register(lab, task, WIDTH)
    problem(served.client.post("/v1/jobs", json=body), 422, "invalid_payload")
    await register(lab, task, other)
    assert served.client.post("/v1/jobs", json=body).status_code == 202


@clause("J-54")
async def test_j54_a_task_is_checked_while_its_only_worker_is_down(
    served: ServedJobs, lab: StreamsLab, fresh: Fresh
) -> None:
    task = fresh("task")
    await (await register(lab, task, NAMED)).deregister()
    body: JsonObject = {"task": task, "payload": {}}
    problem(served.client.post("/v1/jobs", json=body), 422, "invalid_payload")
    served.submit(task, {"name": "a"})


@clause("J-54")
async def test_j54_a_task_that_a_foreign_worker_may_have_is_not_checked(
    served: ServedJobs, lab: StreamsLab, raw: Raw
) -> None:
    await register(lab, "chat", NAMED)
    body: JsonObject = {"task": "chat", "payload": {}}

    def is_refused() -> bool:
        """The gateway knows the contract's tasks without reading registrations each time."""
        return served.client.post("/v1/jobs", json=body).status_code == 422

    wait_until_sync(is_refused, "the gateway to read the registration")
    raw.call("XGROUP", "CREATECONSUMER", "jobs:stream", "workers", "foreign-1")
    served.submit("chat", {})


@clause("J-54")
@pytest.mark.parametrize(
    "schema", ['{"$ref":"http://127.0.0.1:9/never"}', '{"$ref":"file:///etc/hostname"}', "7"]
)
async def test_j54_a_schema_that_cannot_be_used_refuses_nothing(
    served: ServedJobs, lab: StreamsLab, fresh: Fresh, schema: str
) -> None:
    task = fresh("task")
    await register(lab, task, schema)
    served.submit(task, WRONG)


EXPRESSION = """{"$ref": "#/$defs/any", "$defs": {
  "any": {"anyOf": [{"$ref": "#/$defs/add"}, {"$ref": "#/$defs/mul"}, {"type": "integer"}]},
  "add": {"properties": {"left": {"$ref": "#/$defs/any"}, "op": {"const": "add"}}},
  "mul": {"properties": {"left": {"$ref": "#/$defs/any"}, "op": {"const": "mul"}}}}}"""


@clause("J-54", "O-6")
@pytest.mark.parametrize(
    "schema",
    [
        EXPRESSION,
        '{"$dynamicRef": "#x", "$dynamicAnchor": "x"}',
        f'{{"items": {{"anyOf": [{",".join(["{}"] * 19_000)}]}}, "maxProperties": 0}}',
    ],
    ids=["recursive", "dynamic", "large"],
)
async def test_j54_a_check_that_could_block_the_gateway_is_left_to_the_worker(
    served: ServedJobs, lab: StreamsLab, fresh: Fresh, schema: str
) -> None:
    """Each level of the payload doubles what such a schema evaluates: 50 levels never end."""
    task = fresh("task")
    await register(lab, task, schema)
    payload: JsonObject = {"left": "neither", "op": "neither", "text": "x" * 20_000}
    for _ in range(50):
        payload = {"left": payload, "op": "neither"}
    served.submit(task, payload)


@clause("J-54", "O-15")
@pytest.mark.parametrize("word", ['"uniqueItems":true', '"items":{"multipleOf":0.5}'])
async def test_o15_long_numbers_that_are_compared_exactly_are_left_to_the_worker(
    served: ServedJobs, lab: StreamsLab, fresh: Fresh, word: str
) -> None:
    """Regression: 198 KB of integers with 21 digits in a set held the gateway for 14 s."""
    task = fresh("task")
    await register(lab, task, f'{{"properties":{{"sizes":{{{word}}}}}}}')
    problem(
        served.client.post("/v1/jobs", json={"task": task, "payload": {"sizes": [7.2, 7.2]}}),
        422,
        "invalid_payload",
    )
    served.submit(task, {"sizes": [10**20 + number for number in range(9_000)]})
    served.submit(task, {"sizes": [1e300, 1e300]})


@clause("J-54", "O-6")
async def test_j54_many_faults_of_many_jobs_are_answered_with_the_first_of_each(
    served: ServedJobs, lab: StreamsLab, fresh: Fresh
) -> None:
    task = fresh("task")
    await register(lab, task, WIDTH)
    wide: list[Json] = ["wide"] * 2_000
    job: JsonObject = {"task": task, "payload": {"sizes": wide}}
    answer = served.client.post("/v1/jobs/batch", json={"jobs": [job] * 200}, timeout=60)
    details = {result["problem"]["detail"] for result in answer.json()["results"]}
    assert details == {'payload.sizes[0]: value is not of type "integer"'}


@clause("J-54")
async def test_j54_the_check_is_off_by_setting(
    valkey: LocalValkey, lab: StreamsLab, fresh: Fresh
) -> None:
    task = fresh("task")
    await register(lab, task, NAMED)
    with ServedJobs(valkey.url, StreamsSettings(check_payloads=False)) as unchecked:
        unchecked.submit(task, {})


@clause("J-54")
async def test_j54_the_first_job_of_a_task_of_the_settings_is_checked(
    valkey: LocalValkey, lab: StreamsLab, fresh: Fresh
) -> None:
    """The task is known without the registrations, its schema is not."""
    task = fresh("task")
    await register(lab, task, NAMED)
    with ServedJobs(valkey.url, StreamsSettings(tasks=(task,))) as served:
        refused = served.client.post("/v1/jobs", json={"task": task, "payload": {}})
        problem(refused, 422, "invalid_payload")
