"""Lua files as typed objects: one file per verb, with a header that is parsed and checked.

Packages load their folder once at import with `load_scripts`; the connection sends the hash and
loads the source when needed. Nothing here talks to a server.

The header, between the optional `#!lua` line and the code:

    -- settle: end a job that this worker still holds.
    --
    -- Prose: why it is one step.
    --
    -- KEYS
    --   job      hash    job:<id>
    -- ARGV
    --   owner, ttl_s, ...
    -- RETURNS
    --   settled   the job ended now
    -- CLAUSES J-31 J-33
    -- INCLUDE fence

`...` at the end of ARGV or KEYS means any number of further values. INCLUDE inserts
`include/fence.lua` before the code.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

_SECTIONS: Final = ("KEYS", "ARGV", "RETURNS")
_WORD: Final = re.compile(r"[a-z][a-z0-9_]*|\.\.\.")


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    purpose: str
    source: str = field(repr=False)
    keys: tuple[str, ...]
    args: tuple[str, ...]
    returns: tuple[str, ...]
    clauses: tuple[str, ...]
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.source.encode(), usedforsecurity=False)
        object.__setattr__(self, "sha", digest.hexdigest())


class HeaderError(ValueError):
    """A script's header is incomplete."""


def load_scripts(package: str) -> Mapping[str, Script]:
    """Every `.lua` file of a package's folder, by name."""
    folder = resources.files(package)
    return {
        entry.name.removesuffix(".lua"): read_script(entry, folder)
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".lua")
    }


def read_script(file: Traversable, folder: Traversable) -> Script:
    text = file.read_text(encoding="utf-8")
    name = file.name.removesuffix(".lua")
    shebang, _, rest = text.partition("\n") if text.startswith("#!") else ("", "", text)
    comment, code = _split(rest)
    includes: list[str] = []
    clauses: list[str] = []
    words: dict[str, list[str]] = {section: [] for section in _SECTIONS}
    section = ""
    for line in comment:
        head, _, tail = line.strip().partition(" ")
        if head in _SECTIONS and not tail:
            section = head
        elif head == "CLAUSES":
            clauses += tail.split()
        elif head == "INCLUDE":
            includes += tail.split()
        elif not line.strip():
            section = ""
        elif section:
            words[section] += _names(section, line)
    title, colon, purpose = (comment[0] if comment else "").strip().partition(": ")
    if title != name or not colon:
        raise HeaderError(f"{name}.lua must begin with the line `-- {name}: what it is for`")
    if not words["RETURNS"]:
        raise HeaderError(f"{name}.lua must have a result under RETURNS")
    prologue = [
        (folder / "include" / f"{include}.lua").read_text(encoding="utf-8") for include in includes
    ]
    return Script(
        name=name,
        purpose=purpose,
        source="\n".join([line for line in (shebang, *prologue, code) if line]),
        keys=tuple(words["KEYS"]),
        args=tuple(words["ARGV"]),
        returns=tuple(words["RETURNS"]),
        clauses=tuple(clauses),
    )


def _split(text: str) -> tuple[list[str], str]:
    """The leading comment without its dashes, and the code after it."""
    lines = text.split("\n")
    end = next((n for n, line in enumerate(lines) if not line.startswith("--")), len(lines))
    return [line.removeprefix("--").removeprefix(" ") for line in lines[:end]], "\n".join(
        lines[end:]
    )


def _names(section: str, line: str) -> list[str]:
    """Names of a header line: `owner, group, ttl_s`, or one name, two spaces and prose."""
    first = _WORD.match(line.strip())
    if first is None:
        return []
    if section != "ARGV" or "  " in line.strip():
        return [first.group()]
    pieces = (_WORD.match(piece.strip()) for piece in line.split(","))
    return [piece.group() for piece in pieces if piece]
