"""One OpenAPI 3.1 document for all routes; `operation_docs` describes the operations.

Built once with the application. Every operation lists its scope and every problem that it can
answer with, each with an example; the schemas of hot routes come from msgspec types. FastAPI's
documentation pages are not served: they load scripts from other sites.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from inspect import cleandoc
from typing import Final

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from jobwire.api import problems
from jobwire.api.problems import ProblemKind
from jobwire.gateway.access import Access, SelfAuthenticated, access_name
from jobwire.gateway.operation_docs import (
    KEY,
    REF,
    TOKEN,
    Json,
    described,
    operation_id,
    problem_responses,
    types,
)
from jobwire.gateway.route import Route
from jobwire.gateway.router import ScopedRoute
from jobwire.gateway.routes import AnyRoute, Doc, HotRoute

_PLACES: Final = re.compile(r"\{(\w+)\}")
_SENTENCE_END: Final = re.compile(r"\.(?:\s+|$)")
_BODY_SUFFIX: Final = re.compile(rb'("(?:#/components/schemas/)?[A-Z]\w*)Body(?=")')
# The gateway's own operations are listed after those of the systems.
_LAST_TAGS: Final = ("fleet", "streams", "health")


def document(app: FastAPI, scoped: Sequence[ScopedRoute], routes: Sequence[AnyRoute]) -> Json:
    """The whole document, ready to be encoded."""
    whole: Json = get_openapi(
        title=app.title,
        version=app.version,
        openapi_version="3.1.0",
        description=app.description,
        routes=app.routes,
    )
    paths: Json = whole.setdefault("paths", {})
    components: Json = whole.setdefault("components", {})
    schemas: Json = components.setdefault("schemas", {})
    # FastAPI's schema of a 422; we send a Problem instead.
    schemas.pop("HTTPValidationError", None)
    schemas.pop("ValidationError", None)
    hot = [route for route in routes if isinstance(route, HotRoute)]
    operations = [route.operation for route in routes if isinstance(route, Route)]
    docs = [*(route.doc for route in hot), *(route.doc for route in scoped if route.doc)]
    shown = [kind for doc in docs for kind in _types(doc)]
    shown += [kind for each in operations for kind in types(each) if kind is not None]
    found, more = _published(*msgspec.json.schema_components(shown, ref_template=REF))
    _add_schemas(schemas, {**more, "Problem": _PROBLEM_SCHEMA})
    schema_of = {id(kind): schema for kind, schema in zip(shown, found, strict=True)}
    for route in scoped:
        for method in route.methods or ():
            _finish_scoped(method, paths[route.path_format][method.lower()], route, schema_of)
    for route in (each for each in hot if not each.doc.hidden):
        paths.setdefault(route.path, {})[route.method.lower()] = _hot_operation(route, schema_of)
    for each in operations:
        if not each.hidden:
            item: Json = paths.setdefault(each.path, {})
            item[each.method.lower()] = described(each, schema_of)
    components["securitySchemes"] = _SECURITY_SCHEMES | {
        route.access.scheme: dict(route.access.security)
        for route in (*scoped, *routes)
        if isinstance(route.access, SelfAuthenticated)
    }
    whole["tags"] = [{"name": tag} for tag in _tags(paths)]
    return whole


def _tags(paths: Json) -> list[str]:
    """The tags of all operations, in the order to show them."""
    found = {
        tag: None
        for item in paths.values()
        for each in item.values()
        for tag in each.get("tags", ())
    }
    return sorted(found, key=lambda tag: _LAST_TAGS.index(tag) if tag in _LAST_TAGS else -1)


def _published(schemas: Iterable[Json], more: Mapping[str, Json]) -> tuple[list[Json], Json]:
    """The same schemas under their published names: `JobBody` is published as `Job`."""
    # msgspec names two types of one name by their modules, and a dictionary keeps the later one of
    # `Job` and `JobBody`.
    published = [name.rpartition(".")[2].removesuffix("Body") for name in more]
    for name in published:
        if published.count(name) > 1:
            raise ValueError(f"{name}: two types are published under this name")
    for schema in more.values():
        if "description" in schema:
            schema["description"] = cleandoc(schema["description"])
        _drop_hidden_defaults(schema)
    text = _BODY_SUFFIX.sub(rb"\1", msgspec.json.encode((list(schemas), more)))
    return msgspec.json.decode(text, type=tuple[list[Json], Json])


def _drop_hidden_defaults(schema: Json) -> None:
    """Remove the default None of members that are left out where they are hidden, never null."""
    members: Json = schema.get("properties", {})
    for member in members.values():
        if "default" in member and member["default"] is None:
            kind = member.get("type", "null")
            if "$ref" in member or (kind != "null" and "null" not in kind):
                del member["default"]


def _add_schemas(schemas: Json, more: Json) -> None:
    """Add schemas to those of FastAPI's routes; ValueError if a name has two contents."""
    for name, schema in more.items():
        if schemas.setdefault(name, schema) != schema:
            raise ValueError(f"{name}: two types are published under this name")


def _finish_scoped(
    method: str, operation: Json, route: ScopedRoute, schema_of: Mapping[int, Json]
) -> None:
    if route.doc is not None:
        _use_doc(method, operation, route, route.doc, schema_of)
    elif route.summary is None and route.description:
        _split_docstring(operation, route.description)
    operation["x-jobwire-scope"] = access_name(route.access)
    if route.access != "public":
        operation["security"] = _security(route.access)
    responses: Json = operation["responses"]
    responses.pop("422", None)
    common = _common_problems(route.access, body=route.body_field is not None)
    invalid = (problems.INVALID,) if "parameters" in operation and route.doc is None else ()
    responses |= problem_responses([*common, *invalid, *route.own_problems])


def _split_docstring(operation: Json, docstring: str) -> None:
    """The first sentence of the function's docstring is the summary, the rest the description."""
    summary, *rest = _SENTENCE_END.split(docstring, maxsplit=1)
    operation["summary"] = " ".join(summary.split())
    operation["description"] = "".join(rest)
    if not operation["description"]:
        del operation["description"]


def _use_doc(
    method: str, operation: Json, route: ScopedRoute, doc: Doc, schema_of: Mapping[int, Json]
) -> None:
    """Complete an operation of FastAPI as that of a hot route, with FastAPI's parameters."""
    operation.pop("description", None)
    operation |= _described(doc, operation_id(method, route.path))
    for parameter in operation.setdefault("parameters", []):
        schema: Json = parameter["schema"]
        for repeated in ("title", "description"):
            schema.pop(repeated, None)
        if parameter["required"] is False:
            del parameter["required"]  # the default
        if "example" in schema:
            parameter["example"] = schema.pop("example")
    operation["parameters"] += _parameters(doc, schema_of)
    operation["responses"] = _answers(doc, schema_of)


def _described(doc: Doc, operation_id: str) -> Json:
    described: Json = {"tags": [doc.tag], "summary": doc.summary, "operationId": operation_id}
    return {**described, "description": doc.description} if doc.description else described


def _answers(doc: Doc, schema_of: Mapping[int, Json]) -> Json:
    """The successful responses."""
    answer: Json = {"description": doc.description or doc.summary}
    if doc.answer is not None or doc.media_type != "application/json":
        content: Json = {} if doc.answer is None else {"schema": schema_of[id(doc.answer)]}
        if doc.example is not None:
            content["example"] = doc.example
        answer["content"] = {doc.media_type: content}
    others = {str(status): _also(status, why, answer) for status, why in doc.also.items()}
    return {str(doc.status): answer, **others}


def _hot_operation(route: HotRoute, schema_of: Mapping[int, Json]) -> Json:
    doc = route.doc
    operation: Json = {
        **_described(doc, operation_id(route.method, route.path)),
        "x-jobwire-scope": access_name(route.access),
        "parameters": [*_path_parameters(route), *_parameters(doc, schema_of)],
        "responses": {
            **_answers(doc, schema_of),
            **problem_responses(
                [
                    *_common_problems(route.access, body=doc.body is not None),
                    *(problems.WITH_BINARY_BODY if doc.binary else ()),
                    *(problems.ON_STREAMS if route.stream else ()),
                    *doc.problems,
                ]
            ),
        },
    }
    if doc.error is not None:
        _add_errors(operation["responses"], doc, schema_of)
    if route.access != "public":
        operation["security"] = _security(route.access, stream=route.stream)
    if doc.binary:
        # OpenAPI 3.1: bytes have no schema.
        operation["requestBody"] = {"required": True, "content": {each: {} for each in doc.binary}}
    elif doc.body is not None:
        body: Json = {"schema": schema_of[id(doc.body)]}
        if doc.body_example is not None:
            body["example"] = doc.body_example
        operation["requestBody"] = {"required": True, "content": {"application/json": body}}
    return operation


def _add_errors(responses: Json, doc: Doc, schema_of: Mapping[int, Json]) -> None:
    """Errors in the form of another API: with every status of an error."""
    for status, why in doc.errors.items():
        responses.setdefault(str(status), {"description": why, "content": {}})
    for status, response in responses.items():
        if int(status) >= 400:
            response["content"]["application/json"] = {"schema": schema_of[id(doc.error)]}


def _also(status: int, why: str, answer: Json) -> Json:
    """Another success status: the same body, or none for 204."""
    return {"description": why} if status == 204 else {**answer, "description": why}


def _types(doc: Doc) -> Iterable[object]:
    yield from (kind for kind in (doc.body, doc.answer, doc.error) if kind is not None)
    yield from (parameter.kind for parameter in doc.parameters)


def _path_parameters(route: HotRoute) -> Iterable[Json]:
    for name in _PLACES.findall(route.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _parameters(doc: Doc, schema_of: Mapping[int, Json]) -> Iterable[Json]:
    for parameter in doc.parameters:
        documented: Json = {
            "name": parameter.name,
            "in": parameter.place,
            "description": parameter.description,
            "schema": schema_of[id(parameter.kind)],
        }
        if parameter.example is not None:
            documented["example"] = parameter.example
        yield documented


def _security(access: Access, *, stream: bool = False) -> list[dict[str, list[str]]]:
    if isinstance(access, SelfAuthenticated):
        return [{access.scheme: []}]
    return [KEY, TOKEN] if stream else [KEY]


def _common_problems(access: Access, *, body: bool) -> list[ProblemKind]:
    with_body = problems.WITH_BODY if body else ()
    if isinstance(access, SelfAuthenticated):
        return [problems.HEADERS_TOO_LARGE, problems.INTERNAL, *access.problems, *with_body]
    with_scope = problems.WITH_SCOPE if access != "public" else ()
    return [*problems.EVERYWHERE, *with_scope, *with_body]


_PROBLEM_SCHEMA: Final[Json] = {
    "type": "object",
    "description": "RFC 9457. `code` is stable and for programs, `detail` is for people.",
    "required": ["type", "title", "status", "code", "detail", "request_id"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
        "request_id": {"type": "string"},
        "errors": {
            "type": "array",
            "description": "each fault of the request, with its location as a JSON pointer",
            "items": {
                "type": "object",
                "required": ["pointer", "message"],
                "properties": {"pointer": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}
_SECURITY_SCHEMES: Final[Json] = {
    "apiKey": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key (`jw_…`). Not needed on loopback if there are no keys.",
    },
    "streamToken": {
        "type": "apiKey",
        "in": "query",
        "name": "token",
        "description": "For EventSource, from `POST /v1/stream-tokens`; opens one stream.",
    },
}
