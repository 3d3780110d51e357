"""The patches as data: read, applied to a copy of the source, and checked to be still of use.

Called by the runner (`python -m tests.mutations`) and by the suite, which cannot afford to run
them all and so at least sees that none has gone stale. Needs no git: a patch applies where its
lines stand exactly once, wherever the code around them has moved.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

ROOT: Final = Path(__file__).parents[2]
HERE: Final = Path(__file__).parent

_HUNK: Final = re.compile(r"^@@ .*\n", re.MULTILINE)


class Stale(Exception):
    """The patch does not fit the product any more, and says why."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One way to break the product."""

    name: str
    what: str
    red: str
    file: str
    changes: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, patch: Path) -> Self:
        """`what:`, `red:`, an empty line, and a diff of one file."""
        head, _, diff = patch.read_text().partition("\n\n")
        said = dict(line.split(": ", 1) for line in head.splitlines())
        names, *hunks = _HUNK.split(diff)
        (file,) = re.findall(r"^--- a/(.+)$", names, re.MULTILINE)
        changes = tuple((_side(hunk, "-"), _side(hunk, "+")) for hunk in hunks)
        return cls(patch.stem, said["what"], said["red"], file, changes)

    def apply(self, root: Path) -> None:
        """Break the file below this folder."""
        target = root / self.file
        target.write_text(self.broken(target.read_text()))

    def broken(self, text: str) -> str:
        """The file's text with the change made."""
        for old, new in self.changes:
            if (times := text.count(old)) != 1:
                raise Stale(f"{self.file} has these lines {times} times, not once:\n{old}")
            text = text.replace(old, new)
        return text

    def check(self, root: Path = ROOT) -> None:
        """The lines are there, and so is the test."""
        if not (root / self.file).exists():
            raise Stale(f"there is no {self.file}")
        self.broken((root / self.file).read_text())
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
    """All of them, by name."""
    return [Mutation.read(patch) for patch in sorted(HERE.glob("*.patch"))]


def _side(hunk: str, sign: str) -> str:
    """What a hunk takes away (`-`) or puts in its place (`+`), with what stays."""
    lines = hunk.splitlines(keepends=True)
    return "".join(line[1:] or "\n" for line in lines if line[0] in (" ", "\n", sign))
