"""`python -m tools.word_hints`: words without a technical meaning, as a hint of `make check`.

It never fails: a word may be right where it is. `docs/glossary.md` has the words to use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ROOT / "src" / "jobwire"
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
    "src/jobwire/systems/jobs/codec.py": {"cure"},  # the old name of `fix`, still read
    "tests/handlers/llm/test_missing_requirements.py": {"cure"},
    "tests/handlers/llm/test_rag_and_embed.py": {"said"},  # direct speech in a sample text
    "tests/testing/test_testing.py": {"said"},  # a published name
}
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


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
        if "node_modules" not in file.parts
        and file not in (Path(__file__), ROOT / "tests" / "test_names.py")
    ]
    return sorted([*pages, *source, *others])


def main() -> None:
    for line in (line for file in _texts() for line in denied_words(file)):
        print(f"hint: {line} (docs/glossary.md has the words to use)")


if __name__ == "__main__":
    main()
