"""Names of the source: one class per public name; the glossary; hints about words."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

from tools.word_hints import denied_words

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ROOT / "src" / "jobwire"
GLOSSARY: Final = ROOT / "docs" / "glossary.md"
PUBLISHED_TWICE: Final = frozenset({"Client", "ConfigError", "Photo", "RateLimited", "Unavailable"})
"""Published by `jobwire.client`, `jobwire.objects` and `jobwire.valkey`, which are used alone; the
client's `RateLimited` is also the name of an outcome. `Photo` is on the pages of images and of
predictions."""


def test_no_two_public_classes_have_the_same_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{file.relative_to(ROOT)}:{node.lineno}")
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert {name: found for name, found in twice.items() if name not in PUBLISHED_TWICE} == {}
    assert set(twice) == PUBLISHED_TWICE, "an exception that is not needed any more"


@pytest.mark.parametrize("line", ["# nobody reads it", "def isHopeless(): ...", "_CURE = 1\n"])
def test_a_denied_word_is_found_in_prose_and_in_names(tmp_path: Path, line: str) -> None:
    file = tmp_path / "module.py"
    file.write_text(f'"""A module."""\n{line}')
    assert len(list(denied_words(file))) == 1


def test_every_place_of_the_glossary_exists() -> None:
    """The files and the names in them; terms are in alphabetical order."""
    rows = re.findall(
        r"^\| (?!term)(\S[^|]*) \|[^|]*\| (.*) \|$", GLOSSARY.read_text(), re.MULTILINE
    )
    terms = [re.sub(r"[^a-z ]", "", term.lower()) for term, _ in rows]
    assert len(terms) > 80
    assert terms == sorted(terms)
    places = [place for _, place in rows]
    for name, path in re.findall(r"(?:`(\w+)` in )?`([\w/]+\.(?:py|lua|md))`", "\n".join(places)):
        found = [file for file in _candidates(path) if file.exists()]
        assert found or path == "contract.py", path
        defined = rf"^\s*(?:class |def |async def )?{name}\b[ (:\[=]"
        assert not name or re.search(defined, found[0].read_text(), re.MULTILINE), (name, path)


def _candidates(path: str) -> list[Path]:
    """Where a path of the glossary may be: below the source, in a wire, or in the project."""
    return [SOURCE / path, SOURCE / "systems" / path, ROOT / path]
