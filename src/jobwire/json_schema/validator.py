"""A validator for one schema. Used by the gateway on its event loop, and by `isolated_main`.

The library computes on one core and holds the interpreter's lock: a thread would not free the event
loop. So each validator knows how often it evaluates a part of its schema at most, for callers that
have to stay responsive.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    import jsonschema_rs

MAX_PARTS: Final = 20_000
"""Members and items of a schema, at every level."""
MAX_DEPTH: Final = 64
MAX_PATTERN_BYTES: Final = 1 << 20
"""Largest size of a compiled pattern; the engine matches in linear time, without lookaround."""
_MAX_TEXT: Final = 300
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
# Instead of the value in error texts; that is what the value is called in them.
_MASK: Final = "value"


_Fault = tuple[list[str | int], str]


class UnusableSchema(ValueError):
    """The schema cannot be used; the message has the place and the reason."""


class SchemaValidator:
    """Checks values against one schema."""

    def __init__(self, schema: object) -> None:
        """Compile it; UnusableSchema if that fails."""
        try:
            import jsonschema_rs  # of the extras `server` and `llm`: a light worker has none
        except ImportError:
            raise UnusableSchema("it cannot be read without `pip install 'jobwire[llm]'`") from None
        _check_size(schema)
        self.schema = schema
        try:
            self._validator = jsonschema_rs.validator_for(
                cast("Any", schema),
                offline=True,
                mask=_MASK,
                pattern_options=jsonschema_rs.RegexOptions(size_limit=MAX_PATTERN_BYTES),
            )
        except jsonschema_rs.ValidationError as error:
            raise UnusableSchema(_reason(error)) from None
        except (ValueError, TypeError, RecursionError, jsonschema_rs.ReferencingError) as error:
            raise UnusableSchema(str(error).partition("\n")[0][:_MAX_TEXT]) from None

    def is_valid(self, value: object) -> bool:
        return self._validator.is_valid(value)

    def fault(self, value: object) -> _Fault | None:
        """Path and description of the first fault; None if there is none.

        Not `iter_errors`, which finds all faults before it returns the first.
        """
        import jsonschema_rs

        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            path, message = _meant(error)
            return path, message[:_MAX_TEXT]
        return None

    @cached_property
    def evaluations(self) -> float:
        """How many parts of the schema are evaluated for one place of a value at most: each part
        once for each way to it. Infinite if the schema refers to itself, because each level of a
        value can multiply them."""
        try:
            return _ways_below(self.schema, self.schema, {})
        except RecursionError:  # a long chain of references
            return math.inf


def _reason(error: jsonschema_rs.ValidationError) -> str:
    if "is not present in a registry" in error.message or "Unknown meta-schema" in error.message:
        return "it refers to another document, and no other document is read"
    place = "".join(f"[{part!r}]" for part in error.instance_path)
    return f"{place}: {error.message}"[:_MAX_TEXT] if place else error.message[:_MAX_TEXT]


def _meant(error: jsonschema_rs.ValidationError) -> _Fault:
    """The fault itself; of alternatives, that of the one that was meant: the value has its type and
    the constants that distinguish it, and most of the value fits."""
    here = list(error.instance_path)
    alternatives = _alternatives(error)
    if not alternatives:
        unknown = cast("list[str]", getattr(error.kind, "unexpected", []))
        is_member = error.kind.name == "additionalProperties" and unknown
        return here, f"unknown field `{unknown[0]}`" if is_member else error.message
    types = [_types(faults[0], here) for faults in alternatives]
    fitting = [faults for faults, other in zip(alternatives, types, strict=True) if not other]
    if not fitting:
        names = [f'"{name}"' for name in dict.fromkeys(n for each in types for n in each)]
        named = [name for name in names if name != '"null"'] or names
        return here, f"{_MASK} is not of type {' or '.join(named)}"
    chosen = [faults for faults in fitting if not any(map(_is_constant, faults))]
    if not chosen:  # none of the constants that distinguish them
        constants = [each for faults in fitting for each in faults if _is_constant(each)]
        values = [value for each in constants for value in _values(each)]
        return list(constants[0].instance_path), f"{_MASK} is not one of {', '.join(values)}"
    return max((_meant(faults[0]) for faults in chosen), key=lambda fault: len(fault[0]))


def _alternatives(error: jsonschema_rs.ValidationError) -> list[list[Any]]:
    """The faults of each alternative; empty if the schema has none at this place."""
    found = cast("list[list[Any]]", getattr(error.kind, "context", []))
    return [faults for faults in found if faults]


def _types(error: jsonschema_rs.ValidationError, here: list[str | int]) -> list[str]:
    """The types that an alternative takes, if the value has none of them."""
    is_other = error.kind.name == "type" and list(error.instance_path) == here
    return cast("list[str]", getattr(error.kind, "types", [])) if is_other else []


def _is_constant(error: jsonschema_rs.ValidationError) -> bool:
    return error.kind.name in ("const", "enum")


def _values(error: jsonschema_rs.ValidationError) -> list[str]:
    value = cast("Any", error.kind).value
    return [json.dumps(each) for each in (value if error.kind.name == "enum" else [value])]


def _check_size(schema: object) -> None:
    """Level by level, so that a deep schema needs no deep recursion here."""
    level, parts = [schema], 0
    for _ in range(MAX_DEPTH):
        level = [part for each in level for part in _parts(each)]
        parts += len(level)
        if parts > MAX_PARTS:
            raise UnusableSchema(f"it has more than {MAX_PARTS} members and items")
        if not level:
            return
    raise UnusableSchema(f"it is nested deeper than {MAX_DEPTH} levels")


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()


def _ways_below(part: object, root: object, known: dict[int, float]) -> float:
    """One for the part itself, and all ways to the parts below it and behind its references."""
    if id(part) in known:
        return known[id(part)]
    known[id(part)] = math.inf  # until it is known: a way that comes back here does not end
    found = 1 + sum(_ways_below(each, root, known) for each in _containers(part))
    for target in _targets(part, root):
        found += math.inf if target is None else _ways_below(target, root, known)
    known[id(part)] = found
    return found


def _containers(part: object) -> Iterator[object]:
    for each in _parts(part):
        if isinstance(each, dict | list):
            yield cast("object", each)


def _targets(part: object, root: object) -> Iterator[object]:
    """What the references of this part lead to; None for what is not a plain pointer."""
    if not isinstance(part, dict):
        return
    for name in _REFERENCES:
        reference = cast("dict[str, object]", part).get(name)
        if reference is not None:
            yield _pointed(root, reference) if name == "$ref" else None


def _pointed(root: object, reference: object) -> object:
    """The part at a JSON pointer such as `#/$defs/turn`; None if it is anything else."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    found: Any = root
    for step in reference[2:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        found = cast("dict[str, object]", found).get(name) if isinstance(found, dict) else None
    return cast("object", found)
