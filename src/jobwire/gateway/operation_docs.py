"""One operation in the OpenAPI document; `openapi` puts them together. Pure.

Every operation lists its scope and every problem that it can answer with, each with an example. A
member of the query's Struct is a parameter: its `Meta` has description, bounds and example.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import msgspec

from jobwire.api import problems
from jobwire.api.operation import Either, Header, Operation, Proof
from jobwire.api.problems import ProblemKind
from jobwire.gateway.access import SELF
from jobwire.gateway.problems import MEDIA_TYPE

Json = dict[str, Any]  # part of the document
REF: Final = "#/components/schemas/{name}"
KEY: Final = {"apiKey": list[str]()}
TOKEN: Final = {"streamToken": list[str]()}
_EMPTY: Final = (204, 304)
_NULL: Final = {"type": "null"}


def types(operation: Operation[Any]) -> Iterable[object]:
    """The types whose schemas the operation refers to."""
    for body in (operation.body, operation.takes):
        yield from (body.given, body.other) if isinstance(body, Either) else (body,)
    yield None if operation.answer is type(None) else operation.answer
    yield operation.error
    yield from (header.type for header in operation.headers)
    yield from operation.parameter_types.values()


def described(operation: Operation[Any], schema_of: Mapping[int, Json]) -> Json:
    """The operation; `schema_of` has the schemas of its types, by the ids of the types."""
    document: Json = {
        "tags": [operation.tag],
        "summary": operation.summary,
        "operationId": operation_id(operation.method, operation.path),
    }
    if operation.description:
        document["description"] = operation.description
    access = operation.access
    document["x-jobwire-scope"] = SELF if isinstance(access, Proof) else access
    if isinstance(access, Proof):
        document["security"] = [{access.scheme: []}]
    elif access != "public":
        document["security"] = [KEY, TOKEN] if operation.stream else [KEY]
    document["parameters"] = [
        *_path_parameters(operation, schema_of),
        *(_query_parameters(operation.query) if operation.query is not None else ()),
        *(_header(header, schema_of) for header in operation.headers),
    ]
    body = _body(operation, schema_of)
    if body is not None:
        required = {"required": True} if operation.body_required else {}
        document["requestBody"] = {**required, "content": body}
    responses = _successes(operation, schema_of) | problem_responses(_problems(operation))
    if operation.error is not None:
        for status, why in operation.errors.items():
            responses.setdefault(str(status), {"description": why, "content": {}})
        for status, response in responses.items():
            if int(status) >= 400:
                response["content"]["application/json"] = {"schema": schema_of[id(operation.error)]}
    document["responses"] = responses
    return document


def operation_id(method: str, path: str) -> str:
    """`POST /v1/jobs/{id}/cancel` is `post_v1_jobs_id_cancel`."""
    return re.sub(r"\W+", "_", f"{method.lower()}{path}").strip("_")


def problem_responses(kinds: Iterable[ProblemKind]) -> Json:
    """One response per status, with one example per kind."""
    by_status: dict[int, list[ProblemKind]] = {}
    for kind in dict.fromkeys(kinds):
        by_status.setdefault(kind.status, []).append(kind)
    return {
        str(status): {
            "description": "; ".join(f"`{kind.code}`: {kind.detail}" for kind in same),
            "content": {
                MEDIA_TYPE.decode(): {
                    "schema": {"$ref": REF.format(name="Problem")},
                    "examples": {
                        kind.code: {"value": kind.document(request_id="8f3b1c0de2a94d57")}
                        for kind in same
                    },
                }
            },
        }
        for status, same in sorted(by_status.items())
    }


def _problems(operation: Operation[Any]) -> Iterable[ProblemKind]:
    """Those that follow from what the operation declares, then its own."""
    access = operation.access
    if isinstance(access, Proof):
        yield from (problems.HEADERS_TOO_LARGE, problems.INTERNAL, *access.problems)
    else:
        yield from problems.EVERYWHERE
        if access != "public":
            yield from problems.WITH_SCOPE
    if operation.body is not None or operation.takes is not None:
        yield from problems.WITH_BODY
    if operation.binary:
        yield from problems.WITH_BINARY_BODY
    if operation.stream:
        yield from problems.ON_STREAMS
    if operation.query is not None:
        yield problems.INVALID
    yield from operation.problems


def _successes(operation: Operation[Any], schema_of: Mapping[int, Json]) -> Json:
    content: Json = {}
    has_answer = operation.answer is not type(None)
    if has_answer or operation.media_type != "application/json":
        answer: Json = {"schema": schema_of[id(operation.answer)]} if has_answer else {}
        if operation.example is not None:
            answer["example"] = operation.example
        content = {"content": {operation.media_type: answer}}
    whys = {operation.status: operation.description or operation.summary, **operation.also}
    return {
        str(status): {"description": why, **({} if status in _EMPTY else content)}
        for status, why in whys.items()
    }


def _body(operation: Operation[Any], schema_of: Mapping[int, Json]) -> Json | None:
    if operation.binary:
        # OpenAPI 3.1: bytes have no schema.
        return {media_type: {} for media_type in operation.binary}
    body = operation.takes if operation.body is None else operation.body
    if body is None:
        return None
    if isinstance(body, Either):
        schema: Json = {"anyOf": [schema_of[id(body.other)], schema_of[id(body.given)]]}
    else:
        schema = schema_of[id(body)]
    example = {} if operation.body_example is None else {"example": operation.body_example}
    return {"application/json": {"schema": schema, **example}}


def _path_parameters(operation: Operation[Any], schema_of: Mapping[int, Json]) -> Iterable[Json]:
    kinds = operation.parameter_types
    for name in operation.parameters:
        schema = schema_of[id(kinds[name])] if name in kinds else {"type": "string"}
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameters(query: type[msgspec.Struct]) -> Iterable[Json]:
    _, components = msgspec.json.schema_components([query], ref_template=REF)
    struct: Json = components[query.__name__]
    for name, member in cast("Mapping[str, Json]", struct["properties"]).items():
        schema = dict(member)
        description: str = schema.pop("description", "")
        examples: list[object] = schema.pop("examples", [])
        # A parameter that is None is absent; it is never null.
        for kind in schema.pop("anyOf", ()):
            schema |= {} if kind == _NULL else kind
        if schema.get("default", "") in (None, ""):
            schema.pop("default", None)
        parameter: Json = {"name": name, "in": "query", "schema": schema}
        if name in struct.get("required", ()):
            parameter["required"] = True
        if description:
            parameter["description"] = description
        if examples:
            parameter["example"] = examples[0]
        yield parameter


def _header(header: Header, schema_of: Mapping[int, Json]) -> Json:
    example = {} if header.example is None else {"example": header.example}
    return {
        "name": header.name,
        "in": "header",
        "description": header.description,
        "schema": schema_of[id(header.type)],
        **example,
    }
