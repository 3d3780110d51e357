"""The mutations fit the present code; running them (`make mutate`) takes too long for the suite."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.mutations.replacements import ROOT, Mutation, Replacement, Stale, mutations

ALL = mutations()


@pytest.mark.parametrize("mutation", ALL, ids=lambda mutation: mutation.name)
def test_a_mutation_still_applies_and_names_a_test(mutation: Mutation) -> None:
    mutation.check()


def test_a_stale_mutation_is_reported() -> None:
    mutation = ALL[0]
    first = mutation.replacements[0]
    for stale in (
        dataclasses.replace(mutation, replacements=(Replacement("src/nowhere.py", "a", "b"),)),
        dataclasses.replace(mutation, replacements=(dataclasses.replace(first, old="no line\n"),)),
        dataclasses.replace(mutation, red="tests/test_nowhere.py::test_nothing"),
        dataclasses.replace(mutation, red=f"{mutation.red.partition('::')[0]}::test_nothing"),
    ):
        with pytest.raises(Stale):
            stale.check()


def test_a_mutation_breaks_a_copy_and_nothing_else(tmp_path: Path) -> None:
    mutation = ALL[0]
    file = mutation.replacements[0].file
    whole = (ROOT / file).read_text()
    copy = tmp_path / file
    copy.parent.mkdir(parents=True)
    copy.write_text(whole)
    mutation.apply(tmp_path)
    assert copy.read_text() != whole
    assert (ROOT / file).read_text() == whole
