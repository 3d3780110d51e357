"""One OpenAPI 3.1 document: it validates, and describes every route completely."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from jobwire.api.operation import Operation
from jobwire.gateway.feature import Feature
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.route import Route, serve
from tests.gateway.events import EventsFeature
from tests.gateway.features import test_feature
from tests.gateway.routes import route
from tests.gateway.server import Serving, build
from tests.support import clause


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    with Serving(None, test_feature(), EventsFeature()) as served:
        return served.client.get("/openapi.json").json()


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


@clause("O-9")
def test_the_document_is_valid_openapi_31(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1.")
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []


@clause("O-9")
def test_every_route_is_in_it_with_its_scope(document: dict[str, Any]) -> None:
    with Serving(None, test_feature(), EventsFeature()) as served:
        every = served.gateway.inventory
    # The page that shows the document is no part of the API.
    inventory = sorted(route for route in every if not route[1].startswith("/docs"))
    listed = sorted(
        (method, path, operation["x-jobwire-scope"])
        for method, path, operation in operations(document)
    )
    assert listed == inventory
    for _, path, operation in operations(document):
        assert ("security" in operation) == (operation["x-jobwire-scope"] != "public"), path


@clause("O-9")
def test_systems_come_before_the_gateways_own_operations(document: dict[str, Any]) -> None:
    assert [tag["name"] for tag in document["tags"]] == ["test", "streams", "health"]
    summaries = {operation["summary"] for _, _, operation in operations(document)}
    assert "Make a token that opens one event stream" in summaries


@clause("O-9")
def test_every_problem_of_a_route_has_an_example_that_fits(document: dict[str, Any]) -> None:
    schema = document["components"]["schemas"]["Problem"]
    for method, path, operation in operations(document):
        problems = {
            code: example["value"]
            for response in operation["responses"].values()
            for media, content in response.get("content", {}).items()
            if media == "application/problem+json"
            for code, example in content["examples"].items()
        }
        assert "internal" in problems, path
        if operation["x-jobwire-scope"] != "public":
            assert {"unauthorized", "bad_key", "forbidden", "rate_limited"} <= problems.keys()
        if "requestBody" in operation:
            assert {"invalid_json", "too_large", "invalid_request"} <= problems.keys(), path
        for code, example in problems.items():
            Draft202012Validator(schema).validate(example)
            assert example["code"] == code, (method, path)


@clause("O-9")
def test_a_features_problems_are_listed(document: dict[str, Any]) -> None:
    for path, method in (("/full", "get"), ("/form", "post")):
        described = document["paths"][path][method]["responses"]["429"]["description"]
        assert "`queue_full`" in described


@clause("O-9")
def test_a_stream_may_be_opened_with_a_token(document: dict[str, Any]) -> None:
    operation = document["paths"]["/channels/{name}/events"]["get"]
    assert {"streamToken": []} in operation["security"]
    assert "text/event-stream" in operation["responses"]["200"]["content"]


@clause("O-9")
def test_bodies_and_answers_have_schemas(document: dict[str, Any]) -> None:
    echo = document["paths"]["/echo"]["post"]["requestBody"]["content"]["application/json"]
    assert echo["schema"] == {"$ref": "#/components/schemas/Thing"}
    assert document["components"]["schemas"]["Thing"]["required"] == ["name"]
    (parameter,) = document["paths"]["/things/{id}"]["get"]["parameters"]
    assert (parameter["name"], parameter["in"]) == ("id", "path")


@clause("O-9")
def test_the_document_has_no_external_references(document: dict[str, Any]) -> None:
    assert "cdn" not in str(document)


def _msgspec_type(name: str, /, **members: type) -> type[msgspec.Struct]:
    return msgspec.defstruct(name, list(members.items()), module=f"{__name__}.{len(members)}")


async def _nothing(_: HttpRequest) -> None:
    return None


def _answering(path: str, answer: object) -> Route:
    return route("GET", path, "read", _nothing, answer=answer)


@clause("O-9")
def test_two_types_of_one_name_are_refused() -> None:
    """The later one would silently describe the routes of the other."""
    routes = [
        _answering("/1", _msgspec_type("Twice", name=str)),
        _answering("/2", _msgspec_type("Twice", name=int, more=int)),
    ]
    with pytest.raises(ValueError, match="Twice: two types"):
        build(Feature(name="x", routes=routes))


class Hidden(msgspec.Struct):
    """Members that a reader may not see are left out."""

    payload: Annotated[Any, msgspec.Meta(extra_json_schema={"type": "object"})] = None
    fault: Annotated[Any, msgspec.Meta(extra_json_schema={"type": ["string", "null"]})] = None


@clause("O-9")
def test_the_types_of_path_parameters_and_hidden_members() -> None:
    """A member that is never null has no default null, which would not fit its type."""
    queue = Annotated[str, msgspec.Meta(pattern="^[a-z]+$")]
    operation = Operation(
        "GET",
        "/hidden/{queue}/{id}",
        "read",
        "x",
        tag="x",
        parameter_types={"queue": queue},
        answer=Hidden,
    )

    async def read(_request: HttpRequest, queue: str, id_: str) -> Hidden:
        return Hidden(queue, id_)

    with Serving(None, Feature(name="x", routes=[serve(operation, read)])) as served:
        document = served.client.get("/openapi.json").json()
        assert served.client.get("/hidden/a/7").json() == {"payload": "a", "fault": "7"}
    parameters = document["paths"]["/hidden/{queue}/{id}"]["get"]["parameters"]
    assert [each["schema"] for each in parameters] == [
        {"type": "string", "pattern": "^[a-z]+$"},
        {"type": "string"},
    ]
    assert document["components"]["schemas"]["Hidden"]["properties"] == {
        "payload": {"type": "object"},
        "fault": {"type": ["string", "null"], "default": None},
    }
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []
