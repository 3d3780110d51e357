"""A validator for one schema. Used by the gateway on its event loop, and by `isolated_main`.

The library computes on one core and holds the interpreter's lock: a thread would not free the event
loop. So each validator knows whether a check is bounded, for callers that have to stay responsive.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, cast

from jobwire.json_schema.evaluations import evaluations, parts, pointed
from jobwire.json_schema.faults import SchemaFault
from jobwire.json_schema.first_fault import compiled, first_fault

if TYPE_CHECKING:
    import jsonschema_rs

MAX_PARTS: Final = 20_000
"""Members and items of a schema, at every level."""
MAX_DEPTH: Final = 64
_MAX_TEXT: Final = 300


_MAX_EVALUATIONS: Final = 60_000_000
"""Evaluations of a schema for one place times characters of the value: at most some tenths of a
second. The largest payload of the built-in tasks is below it."""
EXACT_WORDS: Final = frozenset({"uniqueItems", "multipleOf"})
"""Keywords that compute with exact numbers: with long ones, each value is compared with all others,
and a KiB of digits costs as much as a MiB of anything else."""
_LONG_NUMBER: Final = re.compile(r"[0-9]{17}|[0-9][eE]")


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
            self._validator = compiled(schema)
        except jsonschema_rs.ValidationError as error:
            raise UnusableSchema(_reason(error)) from None
        except (ValueError, TypeError, RecursionError, jsonschema_rs.ReferencingError) as error:
            raise UnusableSchema(str(error).partition("\n")[0][:_MAX_TEXT]) from None

    def is_valid(self, value: object) -> bool:
        return self._validator.is_valid(value)

    def fault(self, value: object) -> SchemaFault | None:
        """The first fault; None if there is none."""
        found = first_fault(self.schema, self._validator, value)
        return None if found is None else found._replace(text=found.text[:_MAX_TEXT])

    def is_bounded(self, value_json: str) -> bool:
        """Whether checking the value of this text costs little enough for an event loop."""
        if self._evaluations * len(value_json) > _MAX_EVALUATIONS:
            return False
        return not (self._is_exact and _LONG_NUMBER.search(value_json))

    @cached_property
    def _evaluations(self) -> float:
        return evaluations(self.schema, partial(pointed, self.schema), {})

    @cached_property
    def _is_exact(self) -> bool:
        return any(not EXACT_WORDS.isdisjoint(each) for each in _mappings(self.schema))


def _reason(error: jsonschema_rs.ValidationError) -> str:
    if "is not present in a registry" in error.message or "Unknown meta-schema" in error.message:
        return "it refers to another document, and no other document is read"
    place = "".join(f"[{part!r}]" for part in error.instance_path)
    return f"{place}: {error.message}"[:_MAX_TEXT] if place else error.message[:_MAX_TEXT]


def _mappings(schema: object) -> Iterator[dict[str, object]]:
    rest = [schema]
    while rest:
        part = rest.pop()
        rest.extend(parts(part))
        if isinstance(part, dict):
            yield cast("dict[str, object]", part)


def _check_size(schema: object) -> None:
    """Level by level, so that a deep schema needs no deep recursion here."""
    level, count = [schema], 0
    for _ in range(MAX_DEPTH):
        level = [part for each in level for part in parts(each)]
        count += len(level)
        if count > MAX_PARTS:
            raise UnusableSchema(f"it has more than {MAX_PARTS} members and items")
        if not level:
            return
    raise UnusableSchema(f"it is nested deeper than {MAX_DEPTH} levels")
