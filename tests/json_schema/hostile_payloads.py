"""Payloads of at most 200 KB that a schema refuses, and whose faults cost much to describe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from jobwire.handlers.llm.payloads import ChatPayload

Schema = dict[str, Any]


class Hostile(NamedTuple):
    schema: Schema
    payload: Callable[[int], Any]
    """With this many values."""
    most: int
    """Values in about 200 KB."""


def _having(**members: Schema) -> Schema:
    return {"type": "object", "properties": members, "required": [*members]}


def _list_of(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _kinds(count: int) -> Schema:
    """Objects that a constant distinguishes."""
    text = {"type": "string"}
    return {"anyOf": [_having(type={"const": f"t{number}"}, a=text) for number in range(count)]}


Payload = Callable[[int], Any]


def _chat(part: Any, *last: Any) -> Payload:
    def payload(count: int) -> Any:
        return {"messages": [{"role": "user", "content": [*[part] * count, *last]}]}

    return payload


def _items(item: Any, *first: Any) -> Payload:
    def payload(count: int) -> Any:
        return [*first, *[item] * count]

    return payload


def _text(count: int) -> Any:
    return "a" * count


def _tree(count: int) -> Any:
    return {"nodes": [{"name": "a"}] * count + [{"nodes": [{"neme": 1}]}]}


def _members(count: int) -> Any:
    return {f"k{number}": 1 for number in range(count)}


_CHAT: Final = msgspec.json.schema(ChatPayload, ref_template="#/$defs/{name}")
_TEXT: Final = {"type": "string"}
_B: Final = {"type": "string", "pattern": "^b+$"}
_NO_CONSTANT: Final = {"anyOf": [_having(a=_TEXT), _having(b=_TEXT)]}
_NESTED: Final = {
    "anyOf": [
        _having(l={"anyOf": [_list_of(_or_null(_TEXT)), {"type": "object"}]}),
        {"type": "string"},
    ]
}
_TREE: Final = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"nodes": _list_of({"$ref": "#/$defs/node"}), "name": _TEXT},
            "additionalProperties": False,
        }
    },
}

HOSTILE: Final[dict[str, Hostile]] = {
    "parts of a chat that are numbers": Hostile(_CHAT, _chat(1), 95_000),
    "parts of a chat of an unknown type": Hostile(_CHAT, _chat({"type": "x"}), 14_000),
    "parts of a chat, the last one wrong": Hostile(
        _CHAT, _chat({"type": "text", "text": "a"}, {"type": "x"}), 7_000
    ),
    "parts of a chat with a wrong member": Hostile(
        _CHAT, _chat({"type": "image_url", "image_url": 1}), 5_500
    ),
    "two kinds of lists": Hostile(
        {"anyOf": [_list_of(_TEXT), _list_of({"type": "null"})]}, _items(1), 95_000
    ),
    "a list or null": Hostile(_or_null(_list_of(_kinds(2))), _items({"type": "x"}), 14_000),
    "ten kinds of items": Hostile(_or_null(_list_of(_kinds(10))), _items({"type": "x"}), 14_000),
    "fifty kinds of items": Hostile(_or_null(_list_of(_kinds(50))), _items({"type": "x"}), 14_000),
    "one of fifty kinds, wrong": Hostile(
        _or_null(_list_of(_kinds(50))), _items({"type": "t49", "a": 1}), 10_000
    ),
    "items without a constant": Hostile(_or_null(_list_of(_NO_CONSTANT)), _items({"c": 1}), 25_000),
    "alternatives in alternatives": Hostile(
        _or_null(_list_of(_NESTED)), _items({"l": [1] * 10}), 6_000
    ),
    "members of several kinds": Hostile(
        _or_null({"type": "object", "additionalProperties": _kinds(2)}), _members, 16_000
    ),
    "two kinds of members": Hostile(
        {
            "anyOf": [
                {"type": "object", "additionalProperties": _TEXT},
                {"type": "object", "additionalProperties": {"type": "null"}},
            ]
        },
        _members,
        16_000,
    ),
    "unknown members": Hostile(
        _or_null({"type": "object", "properties": {"a": {}}, "additionalProperties": False}),
        _members,
        16_000,
    ),
    "names of members": Hostile(
        _or_null({"type": "object", "propertyNames": {"pattern": "^[a-j]$"}}), _members, 16_000
    ),
    "a long text": Hostile({"anyOf": [{"type": "string", "maxLength": 10}, _B]}, _text, 200_000),
    "a long text, forty patterns": Hostile(
        {"anyOf": [{"pattern": f"^b{number}"} for number in range(40)]},
        _text,
        200_000,
    ),
    "texts": Hostile(_or_null(_list_of(_B)), _items("aaaa"), 25_000),
    "two kinds of texts": Hostile(
        {"anyOf": [_list_of(_B), _list_of({"type": "string", "maxLength": 1})]},
        _items("aaaa"),
        25_000,
    ),
    "too many items": Hostile({"type": "array", "maxItems": 3}, _items({"type": "x"}), 14_000),
    "a wrong type": Hostile({"type": "string"}, _items({"type": "x"}), 14_000),
    "another constant": Hostile({"enum": [[], {}, 1]}, _items({"type": "x"}), 14_000),
    "a missing member": Hostile({"type": "object", "required": ["k0", "a"]}, _members, 16_000),
    "several that must all match": Hostile(
        {"allOf": [{"type": "array"}, _list_of(_kinds(2))]}, _items({"type": "x"}), 14_000
    ),
    "a tuple": Hostile(
        {"type": "array", "prefixItems": [{"type": "array"}], "items": _kinds(2)},
        _items({"type": "x"}, []),
        14_000,
    ),
    "a tree": Hostile(_TREE, _tree, 14_000),
}
