"""The report of clauses finds clauses without a test, by reading pages and tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.clauses import faults, proved_clauses, report, written_clauses

PAGE = """
# A contract

| id | promise | state |
|---|---|---|
| X-1 | One. | built |
| X-2 | Two, with a test on a class. | built |
| X-3 | Three, for a whole file. | built |
| X-4 | Four. | built |
| X-5 | Five. | open |
| X-6 | Six. | open |
| X-8 | Eight. | void |
| Y-1 | Why. | open |
"""
TESTS = """
import tests.support
from tests.support import clause

pytestmark = [clause("X-3")]

@clause("X-1", "X-9")
@other
async def test_one(): ...

@tests.support.clause("X-2")
class TestTwo:
    def test_inner(self): ...

@clause("X-4")
def not_a_test(): ...
"""


@pytest.fixture
def project(tmp_path: Path) -> tuple[Path, Path]:
    pages, tests = tmp_path / "contracts", tmp_path / "tests"
    pages.mkdir()
    (tests / "deep").mkdir(parents=True)
    (pages / "x.md").write_text(PAGE)
    (tests / "deep" / "test_x.py").write_text(TESTS)
    return pages, tests


def test_tests_are_found_by_their_marks(project: tuple[Path, Path]) -> None:
    assert proved_clauses(project[1]) == {
        "X-1": ["tests/deep/test_x.py::test_one"],
        "X-9": ["tests/deep/test_x.py::test_one"],
        "X-2": ["tests/deep/test_x.py::TestTwo"],
        "X-3": ["tests/deep/test_x.py::*"],
    }


def test_a_built_clause_without_a_test_is_a_fault(project: tuple[Path, Path]) -> None:
    assert faults(written_clauses(project[0]), proved_clauses(project[1])) == [
        "X-4 is built but has no test: Four.",
        "X-9 is in no contract, but tests/deep/test_x.py::test_one claims it",
    ]


def test_the_report_counts_and_names_what_is_open(project: tuple[Path, Path]) -> None:
    lines = report(written_clauses(project[0]), proved_clauses(project[1]))
    assert lines[0] == "clauses: 3 of 4 built ones have a test"
    assert lines[-1] == "  open: X-5…6, Y-1"


def test_a_page_with_an_unknown_state_or_a_duplicate_row_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text("| X-1 | One. | nearly |\n")
    with pytest.raises(ValueError, match=r"x.md:1: state 'nearly'; use built, open or void"):
        written_clauses(tmp_path)
    (tmp_path / "x.md").write_text("| X-1 | One. | open |\n| X-1 | Again. | open |\n")
    with pytest.raises(ValueError, match=r"x.md:2: X-1 is written twice"):
        written_clauses(tmp_path)
