"""O-9: schemathesis generates valid and invalid requests from the OpenAPI document and checks every
response against it."""

from __future__ import annotations

import os
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.support import clause
from tests.support.jobs_http import ServedJobs

EXAMPLES: Final = int(os.environ.get("OPENAPI_EXAMPLES") or 5)
Document = dict[str, Any]  # JSON of many shapes
WAITS_FOR_A_WORKER = ("POST /v1/chat/completions", "POST /v1/embeddings")
"""Routes that respond when their job has ended; no worker runs here."""
ANY_TEXT = "/v1/crons/{name}/"
"""Paths of which every text is valid: no request of theirs is invalid."""


def described(served: ServedJobs) -> Document:
    """The OpenAPI document, completed with ids of existing jobs and names of known tasks.

    API keys have their own tests; this gateway has none. Requests that wait are left out.
    """
    ended = [served.submit()["job_id"] for _ in range(3)]
    for job_id in ended:
        assert served.client.delete(f"/v1/jobs/{job_id}").status_code == 200
    waiting = [served.submit()["job_id"] for _ in range(3)]
    document: Document = served.client.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation.pop("security", None)
            parameters = [
                each for each in operation.get("parameters", ()) if each["name"] != "Prefer"
            ]
            operation["parameters"] = parameters
            for parameter in parameters:
                if parameter["name"] == "id":
                    over = path.endswith(("/events", "/retry"))
                    parameter["schema"]["enum"] = ended if over else ended + waiting
    components = document["components"]
    components.pop("securitySchemes")
    request = components["schemas"]["SubmitRequest"]["properties"]
    request["queue"] = {"enum": ["default"]}
    for body in ("SubmitRequest", "BulkRetry"):  # jobs of any task can be canceled
        components["schemas"][body]["properties"]["task"] = {"enum": ["chat", "embed"]}
    streams = [f"/v1/jobs/{job_id}/events" for job_id in ended]
    components["schemas"]["StreamTokenRequest"]["properties"]["path"] = {"enum": streams}
    return document


@clause("J-19", "O-9")
@pytest.mark.timeout(300)  # many examples, slow on a busy machine
@pytest.mark.parametrize("name", ["positive", "negative"])
def test_o09_responses_match_the_openapi_document(served: ServedJobs, name: str) -> None:
    # Imported here: the import takes a second, and only one test process needs it.
    import schemathesis
    from schemathesis import GenerationMode

    mode = GenerationMode(name)
    # The library's types are incomplete.
    schema: Any = schemathesis.openapi.from_dict(described(served))
    schema.config.update(base_url=served.url)
    tried: list[str] = []
    for found in schema.get_all_operations():
        operation = found.ok()
        takes = (operation.path_parameters, operation.query, operation.headers, operation.body)
        if mode is GenerationMode.NEGATIVE and not any(map(len, takes)):
            continue  # no parameters
        if mode is GenerationMode.NEGATIVE and ANY_TEXT in operation.label:
            continue
        if mode is GenerationMode.POSITIVE and operation.label in WAITS_FOR_A_WORKER:
            continue

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def try_it(case: Any) -> None:
            case.validate_response(case.call(timeout=30))

        try_it()
        tried.append(operation.label)
    assert {"POST /v1/jobs", "GET /v1/jobs/{id}/events", "POST /v1/jobs/batch"} <= set(tried)


@clause("O-9")
def test_o09_the_description_is_valid_and_its_examples_fit(served: ServedJobs) -> None:
    document: Document = served.client.get("/openapi.json").json()
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []
    checked = 0
    for path, operations in document["paths"].items():
        for operation in operations.values():
            contents = [
                *operation.get("requestBody", {}).get("content", {}).values(),
                *(
                    content
                    for response in operation["responses"].values()
                    for content in response.get("content", {}).values()
                ),
            ]
            for content in contents:
                whole = {**content.get("schema", {}), "components": document["components"]}
                examples = [each["value"] for each in content.get("examples", {}).values()]
                examples += [content["example"]] if "example" in content else []
                for example in examples:
                    Draft202012Validator(whole).validate(example)
                    checked += path.startswith("/v1/jobs")
    assert checked > 50
