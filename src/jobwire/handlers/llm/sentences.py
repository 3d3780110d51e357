"""Splits documents into sentences that can be embedded and cited. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from jobwire.handlers.llm.payloads import Document

_STARTS: Final = (  # a capital, a digit, or a character of a script without capitals
    r"A-Z0-9À-ÞΆ-ΫЀ-ЯԱ-Ֆ\u0590-\U0010FFFF"
)
_EMOJI: Final = r"\u2600-\u27BF\U0001F000-\U0001FAFF"
_END: Final = re.compile(
    rf"""[.!?…]["'”’)\]»]*(?=\s+["'“‘(\[«„¿¡]*[{_STARTS}])"""  # an end mark, then a start
    rf"|[.!?…](?=[{_EMOJI}])|[。！？｡]"
    r"|\n\s*\n|\n(?=\s*(?:[-*•]|\d+[.)])\s)"  # or a paragraph, or a list item
)
_ABBREVIATIONS: Final = frozenset(
    {"dr.", "mr.", "mrs.", "ms.", "prof.", "st.", "no.", "vs.", "e.g.", "i.e."}
)
_MAX_TOKENS: Final = 450
"""The embedding model takes 512; the estimate below is approximate."""


class Sentence(NamedTuple):
    """A sentence and the id of its document."""

    document: str
    text: str


def sentences(documents: Sequence[str | Document]) -> list[Sentence]:
    """All sentences; a document without an id is named by its position, from 1."""
    found: dict[Sentence, None] = {}
    for number, document in enumerate(documents, 1):
        if isinstance(document, str):
            name, text = str(number), document
        else:
            name, text = document.id or str(number), document.text
        found |= {Sentence(name, each): None for each in split(text)}
    return list(found)


def split(text: str) -> Iterator[str]:
    """Split a text into sentences of one line, short enough to embed."""
    start = 0
    for end in [found.end() for found in _END.finditer(text)] + [len(text)]:
        words = text[start:end].split()
        if words and words[-1].lower() in _ABBREVIATIONS and end < len(text):
            continue
        start = end
        yield from _lines(words)


def _lines(words: Sequence[str]) -> Iterator[str]:
    """Join the words to lines of at most `_MAX_TOKENS`."""
    line: list[str] = []
    tokens = 0
    for word in words:
        for at in range(0, len(word), _MAX_TOKENS):
            piece = word[at : at + _MAX_TOKENS]
            cost = max(1, len(piece) // 2) if piece.isascii() else len(piece)
            if line and tokens + cost > _MAX_TOKENS:
                yield " ".join(line)
                line, tokens = [], 0
            line.append(piece)
            tokens += cost
    if line:
        yield " ".join(line)
