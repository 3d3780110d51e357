"""Every clause marked `built` has a test."""

from tests.support.clauses import faults, proved_clauses, written_clauses


def test_every_built_clause_has_a_test_and_every_tested_clause_exists() -> None:
    assert faults(written_clauses(), proved_clauses()) == []
