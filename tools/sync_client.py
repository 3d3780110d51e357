"""Writes the sync client from the async one: `make sync-client`.

`client/sync*.py` are `client/aio*.py` without `async` and `await`, with the names of RENAMED.
Tokens are replaced, not text: comments and docstrings stay. A test compares the files with what
this writes.
"""

from __future__ import annotations

import io
import itertools
import re
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import Final

CLIENT: Final = Path(__file__).parents[1] / "src" / "jobwire" / "client"
RENAMED: Final = {
    "AsyncClient": "Client",
    "AsyncImages": "Images",
    "AsyncQueue": "Queue",
    "AsyncGenerator": "Generator",
    "aio": "sync",
    "aio_images": "sync_images",
    "aio_queues": "sync_queues",
    "asyncio": "time",  # only its `sleep` is used
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aclose": "close",
    "aread": "read",
    "aiter_bytes": "iter_bytes",
}
_REMOVED: Final = frozenset({"async", "await"})
_WORD: Final = re.compile(r"\w+ ?")


def sources() -> list[Path]:
    """The async modules."""
    return sorted(CLIENT.glob("aio*.py"))


def target_of(source: Path) -> Path:
    return source.with_name(f"{RENAMED[source.stem]}.py")


def converted(source: Path) -> str:
    """The sync module of an async one, in the house format."""
    head = f"# Written from {source.name} by tools/sync_client.py; change that file instead.\n"
    target = target_of(source)
    text = head + _convert(source.read_text())
    # Imports are sorted anew, because names have changed.
    for command in (["check", "--fix-only", "--select=I,F811"], ["format"]):
        options = ["--quiet", f"--stdin-filename={target}", "-"]
        ruff = [sys.executable, "-m", "ruff", *command, *options]
        text = subprocess.run(ruff, input=text, text=True, check=True, capture_output=True).stdout
    return text


def _convert(text: str) -> str:
    lines = text.splitlines(keepends=True)
    edits: list[tuple[tuple[int, int], tuple[int, int], str]] = []
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for token, after in itertools.pairwise(tokens):
        if token.type == tokenize.STRING:
            edits.append((token.start, token.end, _WORD.sub(_in_prose, token.string)))
        elif token.type == tokenize.NAME and token.string in _REMOVED:
            edits.append((token.start, after.start, ""))
        elif token.type == tokenize.NAME and token.string in RENAMED:
            edits.append((token.start, token.end, RENAMED[token.string]))
    for (first, start), (last, end), new in reversed(edits):
        lines[first - 1 : last] = [lines[first - 1][:start] + new + lines[last - 1][end:]]
    return "".join(lines)


def _in_prose(found: re.Match[str]) -> str:
    """A word of a docstring, with the blank after it."""
    word = found[0].rstrip()
    return "" if word in _REMOVED else RENAMED.get(word, word) + found[0][len(word) :]


def main() -> None:
    for source in sources():
        target_of(source).write_text(converted(source))


if __name__ == "__main__":
    main()
