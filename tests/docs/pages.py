"""The written pages, taken apart: their blocks of code and their links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.program import ROOT

# A comment before a block has a note for the tests, as `<!-- not run: needs Docker -->`.
_BLOCK: Final = re.compile(
    r"(?:^<!-- ([a-z ]+): ([^\n]*) -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ +(.*)$", re.MULTILINE)

PAGES: Final = sorted(
    page
    for page in (*ROOT.glob("*.md"), *ROOT.glob("[a-z]*/**/*.md"))
    if ROOT / "tests" not in page.parents
)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code on a page."""

    page: Path
    note: str
    """`not run`, `install` (run by `make docs-check`), `exit`, or empty."""
    detail: str
    """The reason, or the exit code."""
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {self.text.strip().splitlines()[0]}"

    @property
    def file(self) -> str:
        """The name of the file that the block is; empty if it is not a whole file."""
        first = self.text.partition("\n")[0]
        found = re.fullmatch(r"(?:#|//) ([\w.-]+\.\w+)(?:;.*)?", first)
        return found[1] if found else ""

    def commands(self) -> list[str]:
        """The commands for a shell: without prompts and comments, continued lines joined."""
        commands: list[str] = []
        open_line = ""
        for line in self.text.replace("\\\n", " ").splitlines():
            text = f"{open_line}\n{line}" if open_line else line.removeprefix("$ ").strip()
            text = text.partition("  #")[0].strip()
            open_line = "" if _is_whole(text) else text
            if not open_line and text and not text.startswith("#"):
                commands.append(text)
        return [*commands, open_line] if open_line else commands


def _is_whole(line: str) -> bool:
    """Whether all quotes of a line are closed."""
    try:
        shlex.split(line)
    except ValueError:
        return False
    return True


def blocks(page: Path) -> list[Block]:
    """Its blocks of code, in order."""
    return [Block(page, *found) for found in _BLOCK.findall(page.read_text(encoding="utf-8"))]


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """The targets of its links into the project: a file, and a heading in it or nothing."""
    for target in _LINK.findall(_BLOCK.sub("", page.read_text(encoding="utf-8"))):
        if "://" not in target and not target.startswith("mailto:"):
            file, _, anchor = target.partition("#")
            yield (page.parent / file).resolve() if file else page, anchor


def anchors(page: Path) -> set[str]:
    """The anchors of a page, as they are derived from its headings."""
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(text))
    return {heading.strip().replace(" ", "-") for heading in plain}
