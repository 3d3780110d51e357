"""Mutations as data: read, applied to a copy of the source, and checked against the present code.

A mutation is a TOML file: `what` it breaks, `red` (the pytest node id of the test that must fail),
and `[[replace]]` tables with `file`, `old` and `new`. `old` occurs exactly once in its file.
The runner (`python -m tests.mutations`) applies them; the suite only checks that none is stale.
"""

from __future__ import annotations

import importlib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

ROOT: Final = Path(__file__).parents[2]
HERE: Final = Path(__file__).parent


class Stale(Exception):
    """The mutation does not fit the present code or tests."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """One text of a file and its replacement."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutation:
    """One way to break the product."""

    name: str
    what: str
    red: str
    replacements: tuple[Replacement, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Parse one file."""
        content = tomllib.loads(path.read_text())
        replacements = tuple(Replacement(**table) for table in content["replace"])
        return cls(path.stem, content["what"], content["red"], replacements)

    def apply(self, root: Path) -> None:
        """Write the broken files below this folder."""
        for file, text in self.broken(root).items():
            (root / file).write_text(text)

    def broken(self, root: Path) -> dict[str, str]:
        """The text of each touched file with the replacements made."""
        texts: dict[str, str] = {}
        for each in self.replacements:
            if not (root / each.file).exists():
                raise Stale(f"there is no {each.file}")
            text = texts.get(each.file) or (root / each.file).read_text()
            if (times := text.count(each.old)) != 1:
                raise Stale(f"{each.file} has this text {times} times, not once:\n{each.old}")
            texts[each.file] = text.replace(each.old, each.new)
        return texts

    def check(self, root: Path = ROOT) -> None:
        """The replaced text and the named test exist."""
        self.broken(root)
        path, *names = self.red.partition("[")[0].split("::")
        if not (root / path).exists():
            raise Stale(f"there is no {path}")
        # Imported, not parsed: a conformance test is inherited by its class.
        found: object = importlib.import_module(path.removesuffix(".py").replace("/", "."))
        for name in names:
            found = getattr(found, name, None)
        if not callable(found):
            raise Stale(f"there is no {self.red}")


def mutations() -> list[Mutation]:
    """All mutations, by name."""
    return [Mutation.read(path) for path in sorted(HERE.glob("*.toml"))]
