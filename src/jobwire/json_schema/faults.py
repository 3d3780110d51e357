"""What is said about a value that does not match: the place and text of its first fault.

Of alternatives, which the library lists without a choice, the fault is that of the one that was
meant. Used by `validator` for small values, by `first_fault` for others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

if TYPE_CHECKING:
    import jsonschema_rs

MASK: Final = "value"
"""Instead of the value in error texts; that is what the value is called in them."""
_CONSTANTS: Final = ("const", "enum")

Path = list[str | int]


class SchemaFault(NamedTuple):
    path: Path
    text: str
    types: Sequence[str] = ()
    """The types that are wanted, if the value as a whole has another one."""
    constants: Sequence[str] = ()
    """The values that are wanted, if it is no other one."""

    def below(self, step: str | int) -> SchemaFault:
        """The same fault, seen from the value that has this one as a member or item."""
        return self._replace(path=[step, *self.path], types=())


class Alternative(NamedTuple):
    """One of several schemas, none of which the value matches."""

    types: Sequence[str]
    """Those of its first fault."""
    constant: SchemaFault | None
    """The first fault of a constant anywhere in the value: it distinguishes the alternatives."""
    first: Callable[[], SchemaFault]


def of_alternatives(alternatives: Sequence[Alternative]) -> SchemaFault:
    """The fault of the alternative that was meant: the value has its type and the constants that
    distinguish it, and most of the value fits."""
    fitting = [each for each in alternatives if not each.types]
    if not fitting:
        names = [f'"{n}"' for n in dict.fromkeys(n for each in alternatives for n in each.types)]
        named = [name for name in names if name != '"null"'] or names
        return SchemaFault([], f"{MASK} is not of type {' or '.join(named)}")
    chosen = [each for each in fitting if each.constant is None]
    if not chosen:  # none of the constants that distinguish them
        faults = [each.constant for each in fitting if each.constant is not None]
        values = [value for each in faults for value in each.constants]
        return SchemaFault(faults[0].path, f"{MASK} is not one of {', '.join(values)}")
    return max((each.first() for each in chosen), key=lambda fault: len(fault.path))


def of_error(error: jsonschema_rs.ValidationError, depth: int = 0) -> SchemaFault:
    """The fault that the library found, at a place below `depth` steps of its path."""
    path, kind = [*error.instance_path][depth:], error.kind.name
    alternatives = [*_alternatives(error)]
    if alternatives:
        found = of_alternatives(alternatives)
        return SchemaFault([*path, *found.path], found.text)
    if kind == "additionalProperties" and (unknown := _list(error, "unexpected")):
        return SchemaFault(path, f"unknown field `{unknown[0]}`")
    types = () if path or kind != "type" else _list(error, "types")
    constants: list[Any] = []
    if kind in _CONSTANTS:
        value = cast("Any", error.kind).value
        constants = value if kind == "enum" else [value]
    return SchemaFault(path, error.message, types, [json.dumps(each) for each in constants])


def _alternatives(error: jsonschema_rs.ValidationError) -> Iterator[Alternative]:
    """The alternatives that the value does not match; none if it matches some of them."""
    found = _list(error, "context")
    depth = len(error.instance_path)
    for faults in found if all(found) else []:
        constants = (each for each in faults if each.kind.name in _CONSTANTS)
        constant = next(constants, None)
        yield Alternative(
            of_error(faults[0], depth).types,
            None if constant is None else of_error(constant, depth),
            lambda faults=faults: of_error(faults[0], depth),
        )


def _list(error: jsonschema_rs.ValidationError, name: str) -> list[Any]:
    return cast("list[Any]", getattr(error.kind, name, None) or [])
