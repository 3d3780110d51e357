"""Cuts documents into sentences that can be compared and quoted. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from jobwire.handlers.llm.payloads import Document

_END: Final = re.compile(
    r"""[.!?…]["'”’)\]]*(?=\s+["'“‘(\[]*[A-Z0-9À-Þ])"""  # an end mark, then a new beginning
    r"|[。！？]|\n\s*\n|\n(?=\s*(?:[-*•]|\d+[.)])\s)"  # or a paragraph, or an item of a list
)
_NO_END: Final = frozenset(
    {"dr.", "mr.", "mrs.", "ms.", "prof.", "st.", "no.", "vs.", "e.g.", "i.e."}
)
_MOST_TOKENS: Final = 450
"""The embedding model reads 512 at most; this is reckoned on the safe side."""


class Sentence(NamedTuple):
    """A sentence, and the document it stands in."""

    document: str
    text: str


def sentences(documents: Sequence[str | Document]) -> list[Sentence]:
    """All sentences of all documents; a document without an id is named by its place, from 1."""
    found: dict[Sentence, None] = {}
    for number, document in enumerate(documents, 1):
        if isinstance(document, str):
            name, text = str(number), document
        else:
            name, text = document.id or str(number), document.text
        found |= {Sentence(name, each): None for each in split(text)}
    return list(found)


def split(text: str) -> Iterator[str]:
    """The sentences of a text, each on one line and short enough to be embedded."""
    start = 0
    for end in [found.end() for found in _END.finditer(text)] + [len(text)]:
        words = text[start:end].split()
        if words and words[-1].lower() in _NO_END and end < len(text):
            continue
        start = end
        yield from _short(words)


def _short(words: Sequence[str]) -> Iterator[str]:
    """The words as one line, or as several where they are too many."""
    line: list[str] = []
    tokens = 0
    for word in words:
        for at in range(0, len(word), _MOST_TOKENS):
            piece = word[at : at + _MOST_TOKENS]
            cost = max(1, len(piece) // 2) if piece.isascii() else len(piece)
            if line and tokens + cost > _MOST_TOKENS:
                yield " ".join(line)
                line, tokens = [], 0
            line.append(piece)
            tokens += cost
    if line:
        yield " ".join(line)
