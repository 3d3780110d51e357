"""Clauses and their tests: `@clause("T-2")` on a test names the promise that it proves.

The clauses are the rows of `docs/contracts/*.md`. A row marked `built` must have a test; the
others are open. The tests are found by reading the source, so the report is the same with one
worker or many, for the whole suite or a part of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import pytest

ROOT: Final = Path(__file__).parents[2]
CONTRACTS: Final = ROOT / "docs" / "contracts"
TESTS: Final = ROOT / "tests"

_ROW: Final = re.compile(
    r"^\|\s*(?P<id>[A-Z]-\d+[a-z]?)\s*\|(?P<promise>.*)\|(?P<state>[^|]*)\|\s*$"
)
_MARK: Final = "clause"


@dataclass(frozen=True, slots=True)
class Clause:
    """One promise of a contract."""

    id: str
    promise: str
    state: Literal["built", "open", "void"]


def clause(*ids: str) -> pytest.MarkDecorator:
    """Name the clauses that a test proves."""
    return getattr(pytest.mark, _MARK)(*ids)


def written_clauses(folder: Path = CONTRACTS) -> Mapping[str, Clause]:
    """Every clause of the contracts, by id."""
    found: dict[str, Clause] = {}
    for page in sorted(folder.glob("*.md")):
        for number, line in enumerate(page.read_text().splitlines(), 1):
            if not (row := _ROW.match(line)):
                continue
            state = row["state"].strip()
            if state not in ("built", "open", "void"):
                raise ValueError(f"{page.name}:{number}: state {state!r}; use built, open or void")
            if row["id"] in found:
                raise ValueError(f"{page.name}:{number}: {row['id']} is written twice")
            found[row["id"]] = Clause(row["id"], row["promise"].strip(), state)
    return found


def proved_clauses(folder: Path = TESTS) -> Mapping[str, list[str]]:
    """Clause id → the tests that carry it, read from their source."""
    found: dict[str, list[str]] = {}
    for file in sorted(folder.rglob("test_*.py")):
        source = file.read_text()
        if f"{_MARK}(" not in source:
            continue
        for name, clause_id in _marks(ast.parse(source, str(file)).body):
            found.setdefault(clause_id, []).append(f"{file.relative_to(folder.parent)}::{name}")
    return found


def report(written: Mapping[str, Clause], proved: Mapping[str, list[str]]) -> list[str]:
    """A report: the number of proved clauses, the open ones, the faults."""
    built = [each for each in written.values() if each.state == "built"]
    tested = [each for each in built if each.id in proved]
    waiting = [each.id for each in written.values() if each.state == "open"]
    lines = [f"clauses: {len(tested)} of {len(built)} built ones have a test"]
    lines += [f"  {fault}" for fault in faults(written, proved)]
    if waiting:
        lines.append("  open: " + ", ".join(_spans(waiting)))
    return lines


def faults(written: Mapping[str, Clause], proved: Mapping[str, list[str]]) -> list[str]:
    """Built clauses without a test, and tests of clauses that no page has."""
    bare = [each for each in written.values() if each.state == "built" and each.id not in proved]
    unknown = [each for each in proved if each not in written]
    return [f"{each.id} is built but has no test: {each.promise}" for each in bare] + [
        f"{each} is in no contract, but {proved[each][0]} claims it" for each in unknown
    ]


def _marks(statements: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for node in statements:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                if node.name.startswith(("test", "Test")):
                    for decorator in node.decorator_list:
                        yield from ((node.name, each) for each in _ids(decorator))
                if isinstance(node, ast.ClassDef):
                    yield from _marks(node.body)
            case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value):
                calls = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
                for call in calls:
                    yield from (("*", each) for each in _ids(call))
            case _:
                pass


def _ids(decorator: ast.expr) -> Iterator[str]:
    match decorator:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=arguments):
            if name == _MARK:
                for argument in arguments:
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                        yield argument.value
        case _:
            pass


def _spans(ids: list[str]) -> list[str]:
    """T-5, T-6, T-7 → T-5…7."""
    numbers: dict[str, list[int]] = {}
    spans: list[str] = []
    for each in ids:
        family, number = each.split("-")
        if not number.isdigit():  # D-4a
            spans.append(each)
            continue
        numbers.setdefault(family, []).append(int(number))
    for family, members in numbers.items():
        members.sort()
        first = last = members[0]
        for number in [*members[1:], -1]:
            if number == last + 1:
                last = number
                continue
            spans.append(f"{family}-{first}" + (f"…{last}" if last > first else ""))
            first = last = number
    return spans
