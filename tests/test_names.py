"""Names and words of source, tests and pages: one class per public name, no denied word."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ROOT / "src" / "jobwire"
GLOSSARY: Final = ROOT / "docs" / "glossary.md"
PUBLISHED_TWICE: Final = frozenset({"Client", "ConfigError", "RateLimited", "Unavailable"})
"""Published by `jobwire.client`, `jobwire.objects` and `jobwire.valkey`, which are used alone; the
client's `RateLimited` is also the name of an outcome."""

# Words without a technical meaning. docs/glossary.md has the words to use.
DENIED: Final = re.compile(
    r"\b(anybody|borne|by chance|clever|cured?|cures|dawdles?|desk|drips|falls silent|"
    r"fell silent|for ever|gives? back|given back|hands? back|heals|heart|hopeless|hungry|"
    r"in earnest|in vain|kin|last words|lets? go|lets? out|makes? room|mended|mouths?|"
    r"newcomers?|nobody|plainest|said|seams?|somebody|spared|spoil(s|t)?|stands? still|"
    r"stood still|strangers?|takes? along|told|twins?|unwell|whoever|whosever|"
    r"wish(ed|es)?)\b"
)
ALLOWED: Final = {
    "src/jobwire/testing/__init__.py": {"said"},  # a published name
    "src/jobwire/testing/memory.py": {"said"},
    "src/jobwire/wires/streams/codec.py": {"cure"},  # the old name of `fix`, still read
    "tests/handlers/llm/test_missing_requirements.py": {"cure"},
    "tests/handlers/llm/test_rag_and_embed.py": {"said"},  # direct speech in a sample text
    "tests/testing/test_testing.py": {"said"},  # a published name
}
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def test_no_two_public_classes_have_the_same_name() -> None:
    """Names inside a wire follow its protocol, so each wire is compared with itself only."""
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for file in sorted(SOURCE.rglob("*.py")):
        parts = file.relative_to(SOURCE).parts
        wire = parts[1] if parts[0] == "wires" else ""
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[wire, node.name].append(f"{file.relative_to(ROOT)}:{node.lineno}")
    twice = {name: found for (_, name), found in places.items() if len(found) > 1}
    assert {name: found for name, found in twice.items() if name not in PUBLISHED_TWICE} == {}


def test_no_file_has_a_word_of_the_deny_list() -> None:
    assert [line for file in _texts() for line in denied_words(file)] == []


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
    return [SOURCE / path, SOURCE / "wires" / path, ROOT / path]


def denied_words(file: Path) -> Iterator[str]:
    """Each line of a file that has a denied word."""
    name = str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else file.name
    for number, line in enumerate(file.read_text().splitlines(), 1):
        words = " ".join(_WORDS.findall(line)).lower()
        found = {match[0] for match in DENIED.finditer(words)} - ALLOWED.get(name, set())
        if found:
            yield f"{name}:{number}: {', '.join(sorted(found))}"


def _texts() -> list[Path]:
    """Source, pages, tests, tools, benchmarks and examples, without installed packages."""
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md"), ROOT / "README.md"]
    source = [
        *SOURCE.rglob("*.py"),
        *SOURCE.rglob("*.lua"),
        *(SOURCE / "page").rglob("*.js"),
        *(ROOT / "deploy").rglob("*.*"),
        ROOT / "Makefile",
    ]
    others = [
        file
        for folder in ("tests", "tools", "bench", "examples")
        for suffix in ("py", "toml", "js")
        for file in (ROOT / folder).rglob(f"*.{suffix}")
        if "node_modules" not in file.parts and file != Path(__file__)
    ]
    return sorted([*pages, *source, *others])
