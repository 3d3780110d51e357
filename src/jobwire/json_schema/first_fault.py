"""Finds the first fault of a value in bounded steps (O-15). Used by `validator` for every schema.

Whether a value is valid costs little: nothing is made, and the first fault ends it. To describe a
fault the library makes an object with a copy of the value at that place, for alternatives one for
each fault of each of them: gigabytes for a payload of 200 KB. So the library describes only small
parts of a value. A larger one is narrowed first, by asking whether parts are valid: to the first
keyword that refuses it, the first member or item, of alternatives the one that was meant. A keyword
that concerns the value as a whole is described by a sample with the same fault.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar, cast

from jobwire.json_schema.evaluations import evaluations, parts, pointed
from jobwire.json_schema.faults import (
    MASK,
    Alternative,
    SchemaFault,
    of_alternatives,
    of_error,
)

if TYPE_CHECKING:
    import jsonschema_rs

MAX_PATTERN_BYTES: Final = 1 << 20
"""Largest size of a compiled pattern; the engine matches in linear time, without lookaround."""
MAX_CHECKS: Final = 250
"""Checks that narrow a value, each linear in its part of it."""
UNPLACED: Final = f"{MASK} does not fit the schema at this place"
"""Of a part that can be neither described nor narrowed."""

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_ROOT: Final = "urn:root"
_CONSTANTS: Final = "urn:constants"
"""The same schema without anything that could refuse a value but constants."""
_MAX_REFERENCES: Final = 8
"""References, one behind the other, that are followed for the type of an alternative."""

# The words of a schema that have schemas, and how.
_NAMED: Final = {"$defs", "definitions", "properties", "patternProperties", "dependentSchemas"}
_LISTED: Final = {"allOf", "anyOf", "oneOf", "prefixItems"}
_SINGLE: Final = {
    *("items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else"),
    *("unevaluatedItems", "unevaluatedProperties"),
}
_BASES: Final = {"$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef"}
"""Words that change what references lead to."""
_OF_CONSTANTS: Final = {
    *("$ref", "const", "enum", "$defs", "definitions"),
    *("properties", "patternProperties", "additionalProperties", "items", "prefixItems", "allOf"),
}
_OF_WHOLE: Final = (
    *("type", "const", "enum"),
    *("minItems", "maxItems", "uniqueItems"),
    *("minProperties", "maxProperties", "required", "dependentRequired"),
    *("minLength", "maxLength", "pattern"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
)
_OF_MEMBERS: Final = ("properties", "patternProperties", "additionalProperties")
_OF_CONTAINS: Final = ("contains", "minContains", "maxContains")

Part = dict[str, Any]
_Find = Callable[[Part, object], "SchemaFault | None"]
_T = TypeVar("_T")


class Small(NamedTuple):
    """Values whose faults the library describes."""

    cost: int = 10_000
    """Evaluations of the schema times values: as many faults there may be."""
    values: int = 100
    """Values alone: each fault may have a copy of them."""

    def has(self, value: object, evaluated: float) -> bool:
        most = min(self.values, self.cost / evaluated)
        return most >= 1 and _count(value, int(most)) <= most


SMALL: Final = Small()


def compiled(
    schema: object, registry: jsonschema_rs.Registry | None = None
) -> jsonschema_rs.Validator:
    """A validator that fetches nothing."""
    import jsonschema_rs

    return jsonschema_rs.validator_for(
        cast("Any", schema),
        offline=True,
        mask=MASK,
        registry=registry,
        pattern_options=jsonschema_rs.RegexOptions(size_limit=MAX_PATTERN_BYTES),
    )


def first_fault(
    schema: object,
    validator: jsonschema_rs.Validator,
    value: object,
    *,
    small: Small = SMALL,
) -> SchemaFault | None:
    """The first fault of the value; None if it is valid."""
    if validator.is_valid(value):
        return None
    if small.has(value, evaluations(schema, partial(pointed, schema), {})):
        return described(validator, value)
    try:
        search = _Search(schema, small)
    except _NotNarrowable:
        return SchemaFault([], UNPLACED)
    return search.fault(search.root, value)


def described(validator: jsonschema_rs.Validator, value: object) -> SchemaFault:
    """The fault of a small value, in the library's words.

    Not `iter_errors`, which finds all faults before it returns the first.
    """
    import jsonschema_rs

    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        return of_error(error)
    return SchemaFault([], UNPLACED)


def _count(value: object, most: int) -> int:
    """Values in this one, a long string as one for every 128 characters, counted until there are
    more than `most`."""
    found, rest = 0, [value]
    while rest and found <= most:
        one = rest.pop()
        found += 1
        if isinstance(one, str):
            found += len(one) >> 7
        else:
            rest.extend(islice(parts(one), most + 1))
    return found


class _NotNarrowable(Exception):
    """The schema has words whose meaning depends on their place, or there were too many checks."""


class _Search:
    """The search for the first fault of one value."""

    def __init__(self, schema: object, small: Small) -> None:
        import jsonschema_rs

        self.root = _copy(schema, _ROOT)
        self._documents = {_ROOT: self.root, _CONSTANTS: _copy(schema, _CONSTANTS, _OF_CONSTANTS)}
        try:
            self._registry = jsonschema_rs.Registry(
                cast("Any", [*self._documents.items()]), retriever=cast("Any", _fetch_nothing)
            )
        except (ValueError, jsonschema_rs.ReferencingError):
            raise _NotNarrowable from None
        self._evaluations: dict[int, float] = {}
        self._copies: list[object] = []  # kept, because costs are known by identity
        self._small = small
        self._checks = MAX_CHECKS

    def fault(self, part: object, value: object) -> SchemaFault:
        """The first fault of a value that does not match this part of the schema."""
        with suppress(_NotNarrowable):
            if self._is_small(part, value):
                return described(self._compiled(part), value)
            known = cast("Part", part) if isinstance(part, dict) else {}
            for words, search in self._keywords():
                if not words.isdisjoint(known):
                    found = search(known, value)
                    if found is not None:
                        return found
        return SchemaFault([], UNPLACED)

    def _check(self, part: object) -> Callable[[object], bool]:
        """Whether a value is valid."""
        self._checks -= 1
        if self._checks < 0:
            raise _NotNarrowable
        return self._compiled(part).is_valid

    def _compiled(self, part: object) -> jsonschema_rs.Validator:
        import jsonschema_rs

        try:
            return compiled(part, self._registry)
        except (ValueError, TypeError, jsonschema_rs.ReferencingError):
            raise _NotNarrowable from None  # it refers to something that `_copy` left out

    def _is_small(self, part: object, value: object) -> bool:
        if isinstance(part, bool):
            value = None  # the fault is the same for all
        evaluated = evaluations(part, self._target, self._evaluations)
        return self._small.has(value, evaluated)

    def _target(self, reference: object) -> object:
        base, _, pointer = str(reference).partition("#")
        return pointed(self._documents[base], f"#{pointer}")

    def _keywords(self) -> Iterator[tuple[set[str], _Find]]:
        """Finds the fault of some keywords, or None if the value has none; in the order in which
        the library looks at them."""
        yield {*_OF_WHOLE}, self._whole
        yield {*_OF_MEMBERS}, self._members
        yield {"items"}, self._items
        yield {"prefixItems"}, self._first_items
        yield {"contains"}, self._contains
        yield {"propertyNames"}, self._names
        yield {"allOf"}, self._all
        yield {"anyOf"}, self._any
        yield {"oneOf"}, self._one
        yield {"if"}, self._if
        yield {"$ref"}, self._reference

    def _whole(self, part: Part, value: object) -> SchemaFault | None:
        """Keywords of the value as a whole."""
        for word in _OF_WHOLE:
            if word in part:
                check = compiled({word: part[word]})
                if not check.is_valid(value):
                    return described(check, _sample(word, part[word], value))
        return None

    def _members(self, part: Part, value: object) -> SchemaFault | None:
        if not isinstance(value, dict):
            return None
        members = cast("dict[str, object]", value)
        if "patternProperties" in part:
            return self._unplaced(part, members, *_OF_MEMBERS)
        named: dict[str, object] = part.get("properties", {})
        others: object = part.get("additionalProperties", True)
        check = self._check({"properties": named, "additionalProperties": others})
        names = [*members]
        at = _first_refused(names, lambda some: check({name: members[name] for name in some}))
        if at is None:
            return None
        name = names[at]
        if name not in named and others is False:
            only = {word: part[word] for word in _OF_MEMBERS if word in part}
            return described(self._compiled(only), {name: None})
        return self.fault(named.get(name, others), members[name]).below(name)

    def _items(self, part: Part, value: object) -> SchemaFault | None:
        if not isinstance(value, list):
            return None
        begin, of = len(part.get("prefixItems", ())), part["items"]
        items = cast("list[object]", value)[begin:]
        at = _first_refused(items, self._check({"items": of}))
        return None if at is None else self.fault(of, items[at]).below(begin + at)

    def _first_items(self, part: Part, value: object) -> SchemaFault | None:
        if not isinstance(value, list):
            return None
        for at, (of, item) in enumerate(
            zip(part["prefixItems"], cast("list[object]", value), strict=False)
        ):
            if not self._check(of)(item):
                return self.fault(of, item).below(at)
        return None

    def _contains(self, part: Part, value: object) -> SchemaFault | None:
        if self._unplaced(part, value, *_OF_CONTAINS) is None:
            return None
        return described(compiled({"contains": False}), [])

    def _names(self, part: Part, value: object) -> SchemaFault | None:
        if not isinstance(value, dict):
            return None
        names = [*cast("dict[str, object]", value)]
        at = _first_refused(names, self._check({"items": part["propertyNames"]}))
        if at is None:
            return None
        check = compiled({"propertyNames": part["propertyNames"]}, self._registry)
        return described(check, {names[at]: None})

    def _all(self, part: Part, value: object) -> SchemaFault | None:
        refusing = (of for of in part["allOf"] if not self._check(of)(value))
        of = next(refusing, None)
        return None if of is None else self.fault(of, value)

    def _any(self, part: Part, value: object) -> SchemaFault | None:
        if self._check({"anyOf": part["anyOf"]})(value):
            return None
        return of_alternatives([self._alternative(of, value) for of in part["anyOf"]])

    def _one(self, part: Part, value: object) -> SchemaFault | None:
        if self._check({"oneOf": part["oneOf"]})(value):
            return None
        if self._check({"anyOf": part["oneOf"]})(value):
            return described(compiled({"oneOf": [True, True]}), None)
        return of_alternatives([self._alternative(of, value) for of in part["oneOf"]])

    def _alternative(self, of: object, value: object) -> Alternative:
        types = self._types(of, value)
        constant = None
        if not types:
            constants = _copy(of, _CONSTANTS, _OF_CONSTANTS)
            self._copies.append(constants)
            if not self._check(constants)(value):
                constant = self.fault(constants, value)
        return Alternative(types, constant, lambda: self.fault(of, value))

    def _types(self, of: object, value: object) -> Sequence[str]:
        """The types of an alternative if the value has none of them and this is its first fault."""
        part = of
        for _ in range(_MAX_REFERENCES):
            if not isinstance(part, dict):
                break
            part = cast("Part", part)
            if "type" in part:
                fault = self._whole({"type": part["type"]}, value)
                return () if fault is None else fault.types
            words = [word for known, _ in self._keywords() for word in known.intersection(part)]
            if words != ["$ref"]:
                break
            part = self._target(part["$ref"])
        return self.fault(of, value).types

    def _if(self, part: Part, value: object) -> SchemaFault | None:
        of = part.get("then" if self._check(part["if"])(value) else "else", True)
        return None if self._check(of)(value) else self.fault(of, value)

    def _reference(self, part: Part, value: object) -> SchemaFault | None:
        of = self._target(part["$ref"])
        return None if self._check(of)(value) else self.fault(of, value)

    def _unplaced(self, part: Part, value: object, *words: str) -> SchemaFault | None:
        is_valid = self._check({word: part[word] for word in words if word in part})(value)
        return None if is_valid else SchemaFault([], UNPLACED)


def _first_refused(items: list[_T], are_valid: Callable[[list[_T]], bool]) -> int | None:
    """The place of the first item with a fault, by halves; None if all are valid."""
    if are_valid(items):
        return None
    low, high = 0, len(items)  # those before `low` are valid, one before `high` is not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if are_valid(items[low:middle]) else (low, middle)
    return low


def _copy(schema: object, base: str, words: Collection[str] | None = None) -> object:
    """The schema with references into the document `base`, and only with these words."""
    if not isinstance(schema, dict):
        return schema if words is None else True
    made: Part = {}
    for word, of in cast("Part", schema).items():
        if word in _BASES or (word == "$schema" and of != _DRAFT):
            raise _NotNarrowable
        if words is not None and word not in words:
            continue
        if word in _NAMED and isinstance(of, dict):
            of = {name: _copy(each, base, words) for name, each in cast("Part", of).items()}
        elif word in _LISTED and isinstance(of, list):
            of = [_copy(each, base, words) for each in cast("list[object]", of)]
        elif word in _SINGLE:
            of = _copy(of, base, words)
        elif word == "$ref":
            document, _, pointer = str(of).partition("#")
            if document not in ("", _ROOT):
                raise _NotNarrowable
            of = f"{base}#{pointer}"
        made[word] = of
    return made


def _fetch_nothing(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is not read")


def _sample(word: str, given: Any, value: object) -> object:
    """A small value that has the same fault, in the same words."""
    if not isinstance(value, list | dict):
        return value
    members = cast("list[object] | dict[str, object]", value)
    match word:
        case "type":
            return type(members)()
        case "const" | "enum":
            return [given]  # no value is an item of itself
        case "maxItems":
            return [None] * (int(given) + 1)
        case "uniqueItems":
            return [None, None]
        case "maxProperties":
            return {str(number): None for number in range(int(given) + 1)}
        case "required":
            return {name: None for name in given if name in members}
        case "dependentRequired":
            return {name: None for name in chain(given, *given.values()) if name in members}
        case _:  # too few
            return type(members)()
