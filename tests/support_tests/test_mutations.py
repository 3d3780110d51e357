"""The mutations fit the present code; running them (`make mutate`) takes too long for the suite."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest

from tests.mutations.__main__ import changed_files, chosen, files_of
from tests.mutations.replacements import ROOT, Replacement, Stale, mutations

ALL = mutations()


def test_every_mutation_still_applies_and_names_a_test() -> None:
    stale: dict[str, str] = {}
    for mutation in ALL:
        try:
            mutation.check()
        except Stale as error:
            stale[mutation.name] = str(error)
        except pytest.skip.Exception:
            continue  # its test needs a package that is not installed: the others are checked
    assert stale == {}


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


def test_the_newest_changes_choose_the_mutations() -> None:
    first, second = ALL[0], next(each for each in ALL if not files_of(each) & files_of(ALL[0]))
    newest, older = first.replacements[0].file, second.red.partition("::")[0]
    found = chosen(ALL, [newest, older], seed="a")
    assert {first, second} <= set(found)
    assert all(files_of(each) & {newest, older} for each in found)
    at = [newest in files_of(each) for each in found]
    assert at == sorted(at, reverse=True)
    assert chosen(ALL, ["README.md"], seed="a") == []


def test_changed_files_are_those_of_the_tree_and_of_the_last_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True)

    git("init", "--quiet")
    for number in range(12):
        (tmp_path / f"{number}.py").touch()
        git("add", ".")
        git("commit", "--quiet", "--message", str(number))
    (tmp_path / "0.py").write_text("changed")
    newest = [f"{number}.py" for number in range(11, 1, -1)]
    assert changed_files(tmp_path) == ["0.py", *newest]
    monkeypatch.setenv("JOBWIRE_CHANGED_SINCE", "HEAD~2")
    assert changed_files(tmp_path) == ["0.py", "11.py", "10.py"]
