"""One OpenAPI 3.1 document for all routes; `operation_docs` describes the operations.

Built once with the application, from the operations of its routes; the schemas come from their
msgspec types.
"""

from collections.abc import Mapping, Sequence
from inspect import cleandoc
from typing import Final

import msgspec

from jobwire.gateway.access import SelfAuthenticated
from jobwire.gateway.operation_docs import REF, Json, described, types
from jobwire.gateway.route import Route

_DESCRIPTION: Final = "Background jobs with live progress. Whatever answers GET answers HEAD."
# The gateway's own operations are listed after those of the systems.
_LAST_TAGS: Final = ("fleet", "streams", "health")


def document(version: str, routes: Sequence[Route]) -> Json:
    """The whole document, ready to be encoded."""
    operations = [route.operation for route in routes]
    shown = [kind for each in operations for kind in types(each) if kind is not None]
    found, schemas = msgspec.json.schema_components(shown, ref_template=REF)
    _tidy(schemas)
    schema_of = {id(kind): schema for kind, schema in zip(shown, found, strict=True)}
    paths: Json = {}
    for each in operations:
        if not each.hidden:
            item: Json = paths.setdefault(each.path, {})
            item[each.method.lower()] = described(each, schema_of)
    proofs = {
        route.access.scheme: dict(route.access.security)
        for route in routes
        if isinstance(route.access, SelfAuthenticated)
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "jobwire", "version": version, "description": _DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Problem": _PROBLEM_SCHEMA},
            "securitySchemes": {**_SECURITY_SCHEMES, **proofs},
        },
        "tags": [{"name": tag} for tag in _tags(paths)],
    }


def _tags(paths: Json) -> list[str]:
    """The tags of all operations, in the order to show them."""
    found = {
        tag: None
        for item in paths.values()
        for each in item.values()
        for tag in each.get("tags", ())
    }
    return sorted(found, key=lambda tag: _LAST_TAGS.index(tag) if tag in _LAST_TAGS else -1)


def _tidy(schemas: Mapping[str, Json]) -> None:
    for name, schema in schemas.items():
        if "." in name:  # msgspec names two types of one name by their modules
            published = name.rpartition(".")[2]
            raise ValueError(f"{published}: two types are published under this name")
        if "description" in schema:
            schema["description"] = cleandoc(schema["description"])
        _drop_hidden_defaults(schema)


def _drop_hidden_defaults(schema: Json) -> None:
    """Remove the default None of members that are left out where they are hidden, never null."""
    members: Json = schema.get("properties", {})
    for member in members.values():
        if "default" in member and member["default"] is None:
            kind = member.get("type", "null")
            if "$ref" in member or (kind != "null" and "null" not in kind):
                del member["default"]


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
