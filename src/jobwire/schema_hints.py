"""Hints for JSON that does not fit its schema: the nearest member name, or the allowed values.

Called after a failed check: by the worker with the schema of a payload, by the gateway with that of
a body. Pure.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, cast

from jobwire.text import did_you_mean

Schema = Mapping[str, object]

_STEPS: Final = re.compile(r"\.(?P<member>\w+)|\[(?P<item>[^\]]*)\]")
_UNKNOWN: Final = re.compile(r"unknown field `(?P<name>.*)`")
_MAX_LISTED: Final = 12
_MAX_NAME: Final = 64
"""Longer names are compared with none: they come from a caller."""


def hint(schema: Schema, place: str, problem: str) -> str:
    """Text to append to `problem`, which was found at `place` (`.messages[0].role`)."""
    nodes = list(_at(schema, place))
    if found := _UNKNOWN.search(problem):
        known = [name for node in nodes for name in _object(node, "properties")]
        near = (
            did_you_mean(found["name"], known, quote="`") if len(found["name"]) <= _MAX_NAME else ""
        )
        return near or _listed("it takes", known)
    if "enum value" in problem:
        values = [each for node in nodes for each in cast("list[object]", node.get("enum", []))]
        return _listed("it is one of", [repr(each) for each in values])
    return ""


def described(schema: Schema, place: str) -> str:
    """What the text at `place` must be, in words, if the schema has them."""
    found = (node.get("description") for node in _at(schema, place) if "pattern" in node)
    return next((each for each in found if isinstance(each, str)), "")


def _listed(prefix: str, names: list[str]) -> str:
    return f"; {prefix}: {', '.join(names)}" if 0 < len(names) <= _MAX_LISTED else ""


def _at(schema: Schema, place: str) -> Iterator[Schema]:
    """Every schema that the value at `place` may match."""
    nodes = list(_forms(schema, schema))
    for step in _STEPS.finditer(place):
        key = step["member"]
        inner = [
            _object(_object(node, "properties"), key) if key else _object(node, "items")
            for node in nodes
        ]
        nodes = [form for node in inner for form in _forms(schema, node)]
    yield from nodes


def _forms(whole: Schema, node: Schema) -> Iterator[Schema]:
    """The schema with its reference resolved, or each of its alternatives."""
    if isinstance(reference := node.get("$ref"), str):
        node = _object(_object(whole, "$defs"), reference.rpartition("/")[2])
    alternatives = cast("list[Schema]", node.get("anyOf", []))
    for each in alternatives:
        yield from _forms(whole, each)
    if not alternatives:
        yield node


def _object(node: Schema, name: str) -> Schema:
    found = node.get(name)
    return cast(Schema, found) if isinstance(found, Mapping) else {}
