"""O-15: the first fault of a value is found in bounded steps, and is one that the library finds.

Regression: 185 KB of `chat` cost 2.5 s and 150 MiB, because the library describes all faults of all
alternatives; a list of fifty kinds of items cost 21 s and 3 GiB.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Final, cast

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwire.json_schema import first_fault as module
from jobwire.json_schema.faults import SchemaFault, of_error
from jobwire.json_schema.first_fault import (
    MAX_CHECKS,
    SMALL,
    UNPLACED,
    Small,
    compiled,
    first_fault,
)
from jobwire.json_schema.validator import SchemaValidator
from tests.json_schema.hostile_payloads import HOSTILE
from tests.support import clause
from tests.support.program import ROOT

Json = Any
_FEW: Final = 20
_MIB: Final = 2.0


def by_library(schema: Json, value: Json) -> SchemaFault | None:
    return first_fault(schema, compiled(schema), value, small=Small(10**9, 10**9))


def narrowed(schema: Json, value: Json) -> SchemaFault | None:
    """The fault of a value none of whose parts is small, but single values for one keyword."""
    return first_fault(schema, compiled(schema), value, small=Small(2))


@clause("O-15")
@pytest.mark.parametrize("case", HOSTILE)
def test_o15_a_fault_of_a_large_payload_is_that_of_a_small_one(case: str) -> None:
    schema, payload, most = HOSTILE[case]
    small = by_library(schema, payload(_FEW))
    assert small is not None
    assert UNPLACED not in small.text
    found = narrowed(schema, payload(_FEW))
    assert found is not None
    assert (found.path, found.text) == (small.path, small.text)
    large = SchemaValidator(schema).fault(payload(most))
    assert large is not None
    path = [most if step == _FEW and case != "a long text" else step for step in small.path]
    assert (large.path, large.text) == (path, small.text[:300])


@clause("O-15")
@pytest.mark.parametrize("case", HOSTILE)
def test_o15_the_library_describes_only_small_values_and_is_asked_a_bounded_number_of_times(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, payload, most = HOSTILE[case]
    described: list[int] = []
    asked: list[object] = []
    describe, compile_part = module.described, module.compiled

    def counting_describe(validator: jsonschema_rs.Validator, value: object) -> SchemaFault:
        described.append(values(value))
        return describe(validator, value)

    def counting_compile(*args: Any) -> jsonschema_rs.Validator:
        asked.append(args[0])
        return compile_part(*args)

    monkeypatch.setattr(module, "described", counting_describe)
    monkeypatch.setattr(module, "compiled", counting_compile)
    assert SchemaValidator(schema).fault(payload(most)) is not None
    assert max(described, default=0) <= SMALL.values
    assert len(asked) <= 2 * MAX_CHECKS


def values(value: Json) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(values, cast("dict[str, Json]", value).values()))
    return 1 + sum(map(values, cast("list[Json]", value))) if isinstance(value, list) else 1


@clause("O-15")
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from /proc")
def test_o15_the_faults_of_hostile_payloads_need_little_memory() -> None:
    """Their time is measured by `make bench ARGS=faults`: here other programs would count."""
    program = [sys.executable, "-m", "tests.json_schema.fault_costs"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) >= 2 * len(HOSTILE)
    assert [row for row in rows if row["mib"] > _MIB] == []


# Random schemas

NAMES: Final = ("a", "b", "c")
scalars = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "x", "xy", "xyz"])
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner),
    max_leaves=8,
)
TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")
assertions = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, unique=True),
        "maxLength": st.integers(0, 2),
        "minimum": st.integers(0, 3),
        "minItems": st.integers(0, 2),
        "maxItems": st.integers(0, 3),
        "uniqueItems": st.just(True),
        "minProperties": st.integers(0, 2),
        "maxProperties": st.integers(0, 2),
        "required": st.lists(st.sampled_from(NAMES), min_size=1, unique=True),
    },
)
constants = scalars.map(lambda value: {"const": value}) | st.lists(
    json_values, min_size=1, max_size=3, unique_by=lambda value: json.dumps(value, sort_keys=True)
).map(lambda listed: {"enum": listed})


def both(one: Json, two: Json) -> Json:
    return {**one, **two}


def containers(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    several = st.lists(inner, min_size=1, max_size=3)
    words: dict[str, st.SearchStrategy[Json]] = {
        **dict.fromkeys(("items", "contains", "not", "if", "then", "else"), inner),
        **dict.fromkeys(("prefixItems", "allOf", "anyOf", "oneOf"), several),
        "properties": st.dictionaries(st.sampled_from(NAMES), inner, min_size=1),
        "additionalProperties": inner | st.just(False),
        "propertyNames": st.just({"maxLength": 0}),
        "patternProperties": st.just({"^a": {"type": "string"}}),
        "$ref": st.sampled_from(["#/$defs/a", "#/$defs/b"]),
    }
    return st.builds(both, assertions, st.fixed_dictionaries({}, optional=words))


def with_definitions(part: Json, one: Json, two: Json) -> Json:
    definitions = {"a": one, "b": {"anyOf": [{"$ref": "#/$defs/a"}, two]}}
    return both(part if isinstance(part, dict) else {"allOf": [part]}, {"$defs": definitions})


leaves: st.SearchStrategy[Json] = assertions | constants
parts: st.SearchStrategy[Json] = st.recursive(leaves | st.booleans(), containers, max_leaves=6)
schemas: st.SearchStrategy[Json] = st.builds(with_definitions, parts, leaves, leaves)


@clause("O-15")
@given(schemas, json_values)
def test_o15_of_random_schemas_the_fault_is_one_that_the_library_finds(
    schema: Json, value: Json
) -> None:
    """The first one, where there is only one; of several, one of them."""
    all_faults = [
        (fault.path, fault.text) for fault in map(of_error, compiled(schema).iter_errors(value))
    ]
    found = narrowed(schema, value)
    if not all_faults:
        assert found is None
        return
    assert found is not None
    if found.text == UNPLACED:
        assert any(f'"{word}"' in json.dumps(schema) for word in ("not", "patternProperties"))
        assert any(path[: len(found.path)] == found.path for path, _ in all_faults)
    else:
        assert (found.path, found.text) in all_faults


@clause("O-15")
@given(schemas, json_values)
def test_o15_of_random_schemas_small_values_have_the_librarys_fault(
    schema: Json, value: Json
) -> None:
    found, expected = SchemaValidator(schema).fault(value), by_library(schema, value)
    if found is None or expected is None:
        assert found is expected
    else:  # a long text is cut off
        assert expected.text.startswith(found.text)
        assert found == expected._replace(text=found.text)
        assert found.text == expected.text or len(found.text) >= 300


@clause("O-15")
@pytest.mark.parametrize(
    ("schema", "value", "path"),
    [
        ({"properties": {"a": {"not": {"type": "array"}}}}, {"a": [1]}, ["a"]),
        ({"items": {"patternProperties": {"^a": {"type": "null"}}}}, [{"a": 1}], [0]),
        ({"properties": {"a": {"unevaluatedProperties": False}}}, {"a": {"b": [1]}}, ["a"]),
        ({"$id": "https://a.example/b", "properties": {"a": {"type": "null"}}}, {"a": 1}, []),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": False}},
            {"a": 1},
            [],
        ),
    ],
    ids=["not", "patternProperties", "unevaluatedProperties", "base", "draft"],
)
def test_o15_a_part_that_cannot_be_narrowed_is_named_by_its_place(
    schema: Json, value: Json, path: list[str | int]
) -> None:
    assert narrowed(schema, value) == SchemaFault(path, UNPLACED)
