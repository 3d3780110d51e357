"""How often a schema is evaluated, and what its references lead to. Used by `validator` and
`first_fault`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, cast

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")

Target = Callable[[object], object]
"""What a reference leads to; None if that is not known."""


def parts(value: object) -> Iterable[object]:
    """Members or items."""
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()


def evaluations(part: object, target: Target, known: dict[int, float]) -> float:
    """How many parts of the schema are evaluated for one place of a value at most: each part once
    for each way to it. Infinite if the schema refers to itself, because each level of a value can
    multiply them. `known` are those that were computed with the same references."""
    try:
        return _ways_below(part, target, known)
    except RecursionError:  # a long chain of references
        return math.inf


def _ways_below(part: object, target: Target, known: dict[int, float]) -> float:
    """One for the part itself, and all ways to the parts below it and behind its references."""
    if id(part) in known:
        return known[id(part)]
    known[id(part)] = math.inf  # until it is known: a way that comes back here does not end
    found = 1 + sum(_ways_below(each, target, known) for each in _containers(part))
    for each in _targets(part, target):
        found += math.inf if each is None else _ways_below(each, target, known)
    known[id(part)] = found
    return found


def _containers(part: object) -> Iterator[object]:
    for each in parts(part):
        if isinstance(each, dict | list):
            yield cast("object", each)


def _targets(part: object, target: Target) -> Iterator[object]:
    """What the references of this part lead to; None for what is not a plain pointer."""
    if not isinstance(part, dict):
        return
    for name in _REFERENCES:
        reference = cast("dict[str, object]", part).get(name)
        if reference is not None:
            yield target(reference) if name == "$ref" else None


def pointed(root: object, reference: object) -> object:
    """The part at a JSON pointer such as `#/$defs/turn`; None if it is anything else."""
    if reference == "#":
        return root
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    found: Any = root
    for step in reference[2:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        found = cast("dict[str, object]", found).get(name) if isinstance(found, dict) else None
    return cast("object", found)
