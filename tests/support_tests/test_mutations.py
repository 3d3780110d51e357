"""The mutations still fit the product: `make mutate` runs them, which takes too long for here."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.mutations.patches import ROOT, Mutation, Stale, mutations

ALL = mutations()


@pytest.mark.parametrize("mutation", ALL, ids=lambda mutation: mutation.name)
def test_a_mutation_still_applies_and_names_a_test(mutation: Mutation) -> None:
    mutation.check()


def test_a_stale_mutation_is_noticed(tmp_path: Path) -> None:
    mutation = ALL[0]
    for stale in (
        dataclasses.replace(mutation, file="src/jobwire/nowhere.py"),
        dataclasses.replace(mutation, changes=(("no such line\n", ""),)),
        dataclasses.replace(mutation, red="tests/test_nowhere.py::test_nothing"),
        dataclasses.replace(mutation, red=f"{mutation.red.partition('::')[0]}::test_nothing"),
    ):
        with pytest.raises(Stale):
            stale.check()


def test_a_mutation_breaks_a_copy_and_nothing_else(tmp_path: Path) -> None:
    mutation = ALL[0]
    whole = (ROOT / mutation.file).read_text()
    copy = tmp_path / mutation.file
    copy.parent.mkdir(parents=True)
    copy.write_text(whole)
    mutation.apply(tmp_path)
    assert copy.read_text() != whole
    assert (ROOT / mutation.file).read_text() == whole
