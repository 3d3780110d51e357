"""O-15: which checks of a caller's schema may run in the worker's event loop."""

from __future__ import annotations

from typing import Any

import pytest

from jobwire.json_schema.isolated import IsolatedChecks
from tests.support import clause


class AskedAProcess(Exception):
    pass


@pytest.fixture(autouse=True)
def _no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(question: bytes) -> None:
        raise AskedAProcess

    monkeypatch.setattr("jobwire.json_schema.isolated._ask_process", ask)


@clause("O-15", "J-50")
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"uniqueItems": True}, [10**99 + number for number in range(900)]),
        ({"items": {"multipleOf": 1e-300}}, [1e300] * 6_000),
        ({"items": {"pattern": "a"}}, ["a"]),
        ({"$ref": "#/$defs/a", "$defs": {"a": {}}}, 1),
    ],
    ids=["uniqueItems", "multipleOf", "pattern", "$ref"],
)
async def test_o15_a_check_whose_cost_the_sizes_do_not_bound_runs_in_a_process(
    schema: Any, value: Any
) -> None:
    """Regression: numbers of 42 KB held the event loop for 0.1 s."""
    with pytest.raises(AskedAProcess):
        await IsolatedChecks().fault(schema, value)


@clause("O-15")
async def test_o15_an_answer_that_matches_a_plain_schema_needs_no_process() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    assert await IsolatedChecks().fault(schema, {"a": 1}) == ""
    with pytest.raises(AskedAProcess):  # its text is not bounded by the sizes
        await IsolatedChecks().fault(schema, {"a": "1"})
