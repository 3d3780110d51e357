"""Operations and the routes that serve them: arguments, query, body, answer, OpenAPI."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Any, Final, Literal

import httpx
import pytest
from msgspec import Meta, Raw, Struct
from openapi_spec_validator import OpenAPIV31SpecValidator

from jobwire.api import problems as general
from jobwire.api.operation import Either, Header, Operation, Proof
from jobwire.api.problems import ProblemKind
from jobwire.gateway.auth import Principal
from jobwire.gateway.feature import Feature
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.route import Route, reply, serve
from jobwire.job.errors import BackendUnavailable
from tests.gateway.server import Serving, build
from tests.support import clause

DEEP: Final = ProblemKind("deep", 422, "too deep for us")
GONE: Final = ProblemKind("thing_gone", 410, "the thing is gone")
JSON: Final = {"content-type": "application/json"}


class Filter(Struct, frozen=True):
    kind: Annotated[Literal["b", "a"] | None, Meta(description="only these", examples=["a"])] = None
    limit: Annotated[int, Meta(ge=1, le=200, description="how many", examples=[20])] = 50
    text: Annotated[str, Meta(max_length=5)] = ""
    cursor: Annotated[
        Annotated[str, Meta(pattern="^[0-9]+-[a-z]+$")] | None,
        Meta(extra={"fault": "is not a cursor"}),
    ] = None
    slots: Annotated[int, Meta(ge=1)] | None = None


class Named(Struct, frozen=True):
    name: Annotated[str, Meta(pattern="^[a-z]+$")]
    first: int = 0


class Widget(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    size: Annotated[int, Meta(ge=1)] = 1
    data: Any = None


class Widgets(Struct, frozen=True, forbid_unknown_fields=True):
    widgets: list[Widget]


class Shown(Struct, frozen=True):
    what: Any


def operation(method: Any, path: str, **more: Any) -> Operation[Any]:
    return Operation(method, path, "read", f"The operation {path}", tag="test", **more)


LIST: Final = operation("GET", "/filtered", query=Filter, answer=Shown, example={"what": 1})
NAMED: Final = operation("GET", "/named", query=Named, answer=Shown)
PUT: Final = operation(
    "PUT",
    "/widgets/{id}",
    body=Widget,
    answer=Shown,
    status=201,
    also={202: "later"},
    headers=[Header("Prefer", "how to answer", str, "wait=1")],
    problems=[GONE],
)
ADD: Final = operation("POST", "/widgets", body=Either("widgets", Widgets, Widget), answer=Shown)
MAYBE: Final = operation("POST", "/maybe", body=Widget | None, answer=Shown)
BOTH: Final = operation("POST", "/both/{a}/{b}", query=Filter, body=Widget, answer=Shown)
DEEP_BODY: Final = operation("POST", "/deep", body=Widget, too_deep=DEEP, answer=Shown)
REMOVE: Final = operation("DELETE", "/widgets/{id}", status=204, also={202: "later"})
SILENT: Final = operation("GET", "/silent", media_type="text/plain")
OTHER_FORM: Final = operation("POST", "/other-form", body=Widget, error=Shown, errors={418: "tea"})
SIGNED: Final = Operation(
    "POST",
    "/signed",
    Proof("testSignature", {"type": "http", "scheme": "bearer"}, [general.UNAUTHORIZED]),
    "A webhook",
    tag="test",
    takes=dict,
    answer=Shown,
)


async def show_filter(request: HttpRequest, query: Filter) -> Shown:
    return Shown([query.kind, query.limit, query.text, query.cursor, query.slots])


async def show_name(_request: HttpRequest, query: Named) -> Shown:
    return Shown(query.name)


async def put(request: HttpRequest, id_: str, body: Widget) -> Shown | Reply:
    if id_ == "gone":
        raise Problem(GONE)
    shown = Shown([id_, body.name, Raw(request.content)])
    return reply(shown, 202, ((b"x-later", b"1"),)) if id_ == "later" else shown


async def add(_request: HttpRequest, body: Widget | Widgets) -> Shown:
    return Shown(type(body).__name__)


async def maybe(_request: HttpRequest, body: Widget | None) -> Shown:
    return Shown(None if body is None else body.name)


async def both(_request: HttpRequest, a: str, b: str, query: Filter, body: Widget) -> Shown:
    return Shown([a, b, query.limit, body.name])


async def deep(_request: HttpRequest, body: Widget) -> Shown:
    return Shown(body.data)


async def remove(_request: HttpRequest, id_: str) -> Reply | None:
    return reply({"id": id_}, 202) if id_ == "later" else None


async def silent(request: HttpRequest) -> None:
    await request.start(200, ((b"content-type", b"text/plain"),))
    await request.end()


async def other_form(_request: HttpRequest, body: Widget) -> Reply:
    if body.name == "away":
        raise BackendUnavailable("the server does not answer")
    raise Problem(GONE)


async def signed(request: HttpRequest) -> Shown:
    return Shown((await request.body()).decode())


async def verify(request: HttpRequest) -> Principal:
    if request.headers.get(b"authorization") != b"Bearer ok":
        raise Problem(general.UNAUTHORIZED)
    return Principal("acme", frozenset(), "signer")


def in_other_form(problem: Problem) -> Reply:
    return reply({"oops": problem.kind.code}, problem.kind.status)


def routes() -> list[Route]:
    return [
        serve(LIST, show_filter),
        serve(NAMED, show_name),
        serve(PUT, put),
        serve(ADD, add),
        serve(MAYBE, maybe),
        serve(BOTH, both),
        serve(DEEP_BODY, deep),
        serve(REMOVE, remove),
        serve(SILENT, silent),
        serve(OTHER_FORM, other_form, refuse=in_other_form),
        serve(SIGNED, signed, verify=verify),
    ]


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with Serving(None, Feature(name="test", routes=routes())) as served:
        yield served.client


def shown(answer: httpx.Response) -> Any:
    assert answer.status_code in (200, 201, 202), answer.text
    return answer.json()["what"]


def fault(answer: httpx.Response) -> tuple[int, str, str]:
    body = answer.json()
    return answer.status_code, body["code"], body["detail"]


# Declaration


def decorated(endpoint: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(endpoint)
    async def call(*args: Any) -> Any:
        return await endpoint(*args)

    return call


async def _without_query(request: HttpRequest) -> None: ...
async def _swapped(request: HttpRequest, body: Widget, id_: str) -> None: ...
async def _misnamed(request: HttpRequest, widget_id: str, body: Widget) -> None: ...


@pytest.mark.parametrize(
    ("described", "endpoint", "expected"),
    [
        (LIST, _without_query, r"\(request, query\), and has \(request\)"),
        (PUT, _swapped, r"\(request, id, body\), and has \(request, body, id\)"),
        (PUT, _misnamed, r"and has \(request, widget_id, body\)"),
        (SILENT, show_filter, r"\(request\), and has \(request, query\)"),
    ],
)
def test_an_endpoint_that_does_not_fit_is_refused_at_start(
    described: Operation[Any], endpoint: Callable[..., Awaitable[Any]], expected: str
) -> None:
    with pytest.raises(TypeError, match=expected):
        serve(described, endpoint)


def test_a_decorator_keeps_the_signature_of_an_endpoint() -> None:
    assert serve(PUT, decorated(put)).label == "PUT /widgets/{id}"


@clause("O-6")
def test_a_proof_needs_a_verifier_and_a_scope_has_none() -> None:
    with pytest.raises(TypeError, match="needs a verifier"):
        serve(SIGNED, signed)
    with pytest.raises(TypeError, match="has the scope 'read'"):
        serve(SILENT, silent, verify=verify)


class Decimal(Struct):
    ratio: float = 0.0


class Many(Struct):
    names: list[str]


@pytest.mark.parametrize("query", [Decimal, Many])
def test_a_query_parameter_of_another_type_is_refused(query: type[Struct]) -> None:
    async def endpoint(request: HttpRequest, query: Any) -> None: ...

    with pytest.raises(TypeError, match="neither str, int nor Literal"):
        serve(operation("GET", "/x", query=query), endpoint)


def test_a_literal_that_hides_a_parameter_must_say_so() -> None:
    """`GET /jobs/queues` would answer 405 for the job with this id."""

    async def endpoint(request: HttpRequest) -> None: ...

    async def of_id(request: HttpRequest, id_: str) -> None: ...

    one = serve(operation("GET", "/jobs/{id}/events"), of_id)
    hiding = [operation("POST", "/jobs/queues"), operation("POST", "/jobs/queues", hides=True)]
    for routes in ([one, serve(hiding[0], endpoint)], [serve(hiding[0], endpoint), one]):
        with pytest.raises(ValueError, match="POST /jobs/queues: 'queues' hides"):
            build(Feature(name="x", routes=routes))
    build(Feature(name="x", routes=[one, serve(hiding[1], endpoint)]))


def test_a_path_is_served_once() -> None:
    with pytest.raises(ValueError, match="GET /silent is declared twice"):
        build(Feature(name="x", routes=[serve(SILENT, silent), serve(SILENT, silent)]))


# The query


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [None, 50, "", None, None]),
        ("?other=1", [None, 50, "", None, None]),
        ("?limit=007&kind=a&text=%C3%BC&cursor=1-a&slots=3", ["a", 7, "ü", "1-a", 3]),
        ("?limit=999&limit=20", [None, 20, "", None, None]),
    ],
)
def test_a_query_is_read_as_its_type(
    client: httpx.Client, query: str, expected: list[object]
) -> None:
    assert shown(client.get(f"/filtered{query}")) == expected


@pytest.mark.parametrize(
    ("query", "name", "message"),
    [
        ("limit=0", "limit", "must be a number from 1 to 200"),
        ("limit=201", "limit", "must be a number from 1 to 200"),
        ("limit=1e1", "limit", "must be a number from 1 to 200"),
        ("limit=20.0", "limit", "must be a number from 1 to 200"),
        ("limit=%2B5", "limit", "must be a number from 1 to 200"),
        ("limit=", "limit", "must be a number from 1 to 200"),
        ("limit=%D9%A5", "limit", "must be a number from 1 to 200"),
        ("limit=" + "9" * 5000, "limit", "must be a number from 1 to 200"),
        ("slots=0", "slots", "must be a number from 1"),
        ("kind=c", "kind", "must be one of a, b"),
        ("kind=", "kind", "must be one of a, b"),
        ("cursor=x", "cursor", "is not a cursor"),
        ("text=abcdef", "text", "must have at most 5 characters"),
    ],
)
def test_a_fault_of_a_query_names_its_parameter(
    client: httpx.Client, query: str, name: str, message: str
) -> None:
    answer = client.get(f"/filtered?{query}")
    assert fault(answer) == (422, "invalid_request", f"query /{name}: {message}")
    expected = {"in": "query", "pointer": f"/{name}", "message": message}
    assert answer.json()["errors"] == [expected]


def test_a_query_may_have_required_parameters(client: httpx.Client) -> None:
    assert fault(client.get("/named"))[2] == "query /name: is required"
    assert fault(client.get("/named?name=7"))[2] == "query /name: must match ^[a-z]+$"
    assert fault(client.get("/named?name=a&first=x"))[2].endswith("must be a number from 0")
    assert shown(client.get("/named?name=a")) == "a"


def test_a_query_of_too_many_parameters_is_not_parsed(client: httpx.Client) -> None:
    answer = client.get("/filtered?" + "a=1&" * 64)
    assert fault(answer)[:2] == (400, "bad_request")


# The body


def test_an_endpoint_gets_path_query_and_body(client: httpx.Client) -> None:
    answer = client.post("/both/x/y?limit=3", json={"name": "n"})
    assert shown(answer) == ["x", "y", 3, "n"]


def test_the_bytes_of_the_body_are_kept(client: httpx.Client) -> None:
    body = '{"name":"n",  "size":2}'
    answer = client.put("/widgets/7", content=body, headers=JSON)
    assert answer.text == f'{{"what":["7","n",{body}]}}'


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"name":"a"}', "Widget"),
        ('{"widgets":[{"name":"a"}]}', "Widgets"),
        (
            '{"widgets":[],"name":"a"}',
            "body : Object contains unknown field `name`; it takes: widgets",
        ),
        ('{"widgets":[{"name":1}]}', "body /widgets/0/name: Expected `str`, got `int`"),
        (
            '{"other":1}',
            "body : Object contains unknown field `other`; it takes: name, size, data",
        ),
        ('{"nme":"a"}', "body : Object contains unknown field `nme`; did you mean `name`?"),
        ("[]", "body : Expected `object`, got `array`"),
    ],
)
def test_a_body_of_either_type(client: httpx.Client, body: str, expected: str) -> None:
    answer = client.post("/widgets", content=body, headers=JSON)
    if answer.status_code == 200:
        assert shown(answer) == expected
    else:
        assert fault(answer) == (422, "invalid_request", expected.replace("body :", "body:"))


def test_a_body_may_be_absent(client: httpx.Client) -> None:
    """Where its type allows None."""
    assert shown(client.post("/maybe")) is None
    assert shown(client.post("/maybe", content=b"null", headers=JSON)) is None
    assert shown(client.post("/maybe", json={"name": "n"})) == "n"
    assert fault(client.post("/maybe", json={"nam": "n"}))[:2] == (422, "invalid_request")
    assert fault(client.post("/maybe", content=b" "))[:2] == (400, "invalid_json")
    paths = client.get("/openapi.json").json()["paths"]
    assert "required" not in paths["/maybe"]["post"]["requestBody"]
    assert paths["/both/{a}/{b}"]["post"]["requestBody"]["required"] is True


@pytest.mark.parametrize(
    ("body", "status", "code", "detail"),
    [
        (b'{"nam":"a"}', 422, "invalid_request", "body: Object contains unknown field `nam`"),
        (b"{}", 422, "invalid_request", "body: Object missing required field `name`"),
        (b'{"name":"a","size":0}', 422, "invalid_request", "body /size: Expected `int` >= 1"),
        (b'{"name":"a","size":5.0}', 422, "invalid_request", "Expected `int`, got `float`"),
        (b"", 400, "invalid_json", "Input data was truncated"),
        (b'{"name":', 400, "invalid_json", "Input data was truncated"),
        (b'{"name":"\xff"}', 400, "invalid_json", "the body is not valid UTF-8"),
        (b'{"data":[1,NaN]}', 400, "invalid_json", "NaN and Infinity are not JSON (byte 11)"),
        (b'{"data":-Infinity}', 400, "invalid_json", "NaN and Infinity are not JSON (byte 9)"),
        (b'{"data":"\\ud800"}', 400, "invalid_json", "one half of a surrogate pair"),
        (b'{"data":"\\\\\\uD800x"}', 400, "invalid_json", "one half of a surrogate pair"),
        (b'{"data":"\\udc00"}', 400, "invalid_json", "one half of a surrogate pair"),
        (b'{"data":"\\\\ud800"', 400, "invalid_json", "Input data was truncated"),
        (b'{"data":' + b"[" * 5000, 400, "invalid_json", "the body is nested too deeply"),
    ],
)
def test_a_fault_of_a_body_is_explained(
    client: httpx.Client, body: bytes, status: int, code: str, detail: str
) -> None:
    answer = client.put("/widgets/7", content=body, headers=JSON)
    assert fault(answer)[:2] == (status, code)
    assert detail in fault(answer)[2]


def test_the_text_of_a_fault_is_bounded(client: httpx.Client) -> None:
    answer = client.put("/widgets/7", json={"x" * 100_000: 1})
    assert fault(answer)[:2] == (422, "invalid_request")
    assert len(answer.content) < 2000


def test_an_operation_has_its_own_problem_for_depth(client: httpx.Client) -> None:
    body = b'{"name":"a","data":' + b"[" * 5000
    answer = client.post("/deep", content=body, headers=JSON)
    assert fault(answer) == (422, "deep", "the body is nested too deeply")


def test_another_media_type_is_refused(client: httpx.Client) -> None:
    answer = client.put("/widgets/7", content="{}", headers={"content-type": "text/plain"})
    assert fault(answer)[:2] == (415, "unsupported_media_type")


# The answer


def test_an_answer_a_reply_or_nothing(client: httpx.Client) -> None:
    answer = client.put("/widgets/7", json={"name": "n"})
    assert (answer.status_code, answer.headers["content-type"]) == (201, "application/json")
    later = client.put("/widgets/later", json={"name": "n"})
    assert (later.status_code, later.headers["x-later"]) == (202, "1")
    assert fault(client.put("/widgets/gone", json={"name": "n"}))[:2] == (410, "thing_gone")
    assert (client.get("/silent").status_code, client.get("/silent").content) == (200, b"")


def test_without_an_answer_204_is_sent(client: httpx.Client) -> None:
    answer = client.delete("/widgets/7")
    assert (answer.status_code, answer.content) == (204, b"")
    assert "content-length" not in answer.headers
    assert client.delete("/widgets/later").json() == {"id": "later"}


def test_problems_in_the_form_of_another_api(client: httpx.Client) -> None:
    for body, status, code in (
        ({"name": "n"}, 410, "thing_gone"),
        ({"nam": "n"}, 422, "invalid_request"),
    ):
        answer = client.post("/other-form", json=body)
        assert (answer.status_code, answer.json()) == (status, {"oops": code})
    # Failures and wrong methods too: a client of another API knows no other form.
    away = client.post("/other-form", json={"name": "away"})
    assert (away.status_code, away.json()) == (503, {"oops": "unavailable"})
    assert client.get("/other-form").json() == {"oops": "method_not_allowed"}


@clause("O-6")
def test_a_proof_is_verified_before_the_endpoint(client: httpx.Client) -> None:
    assert fault(client.post("/signed", json={}))[:2] == (401, "unauthorized")
    headers = {**JSON, "authorization": "Bearer ok"}
    assert shown(client.post("/signed", content=b"{}", headers=headers)) == "{}"


# The document


@clause("O-9")
def test_operations_are_in_the_document(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []
    paths, schemas = document["paths"], document["components"]["schemas"]
    assert paths["/filtered"]["get"]["parameters"] == [
        {
            "name": "kind",
            "in": "query",
            "schema": {"enum": ["a", "b"]},
            "description": "only these",
            "example": "a",
        },
        {
            "name": "limit",
            "in": "query",
            "schema": {"type": "integer", "minimum": 1, "maximum": 200, "default": 50},
            "description": "how many",
            "example": 20,
        },
        {"name": "text", "in": "query", "schema": {"type": "string", "maxLength": 5}},
        {
            "name": "cursor",
            "in": "query",
            "schema": {"type": "string", "pattern": "^[0-9]+-[a-z]+$"},
        },
        {"name": "slots", "in": "query", "schema": {"type": "integer", "minimum": 1}},
    ]
    assert paths["/named"]["get"]["parameters"][0]["required"]
    assert "Filter" not in schemas
    put_widget = paths["/widgets/{id}"]["put"]
    assert [each["name"] for each in put_widget["parameters"]] == ["id", "Prefer"]
    ref = {"$ref": "#/components/schemas/Shown"}
    for status in ("201", "202"):
        assert put_widget["responses"][status]["content"] == {"application/json": {"schema": ref}}
    assert {"410", "413", "415", "422"} <= put_widget["responses"].keys()
    removed = paths["/widgets/{id}"]["delete"]["responses"]
    assert "content" not in removed["204"]
    body = paths["/widgets"]["post"]["requestBody"]["content"]["application/json"]
    assert [each["$ref"][21:] for each in body["schema"]["anyOf"]] == ["Widget", "Widgets"]
    assert paths["/signed"]["post"]["security"] == [{"testSignature": []}]
    assert "testSignature" in document["components"]["securitySchemes"]
    errors = paths["/other-form"]["post"]["responses"]
    assert errors["418"] == {"description": "tea", "content": {"application/json": {"schema": ref}}}
