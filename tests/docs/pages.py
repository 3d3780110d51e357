"""The written pages, taken apart: their blocks of code and their links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.program import ROOT

_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {self.text.strip().splitlines()[0]}"

    def commands(self) -> list[str]:
        """What a shell would run: prompts and notes left out, continued lines joined."""
        lines = self.text.replace("\\\n", " ").splitlines()
        commands = [line.removeprefix("$ ").partition("  #")[0].strip() for line in lines]
        return [line for line in commands if line and not line.startswith("#")]


def blocks(page: Path) -> list[Block]:
    """Its blocks of code, in order."""
    return [Block(page, *found) for found in _BLOCK.findall(page.read_text(encoding="utf-8"))]


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """Where its links into the project lead: a file, and a heading in it or nothing."""
    for target in _LINK.findall(_BLOCK.sub("", page.read_text(encoding="utf-8"))):
        if "://" not in target and not target.startswith("mailto:"):
            file, _, anchor = target.partition("#")
            yield (page.parent / file).resolve() if file else page, anchor


def anchors(page: Path) -> set[str]:
    """What a link may name on a page, as they are made of its headings."""
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(text))
    return {heading.strip().replace(" ", "-") for heading in plain}
