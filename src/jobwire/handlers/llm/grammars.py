"""Grammars (GBNF) that keep a small model's answer to a form. Pure.

A grammar gives form, never knowledge: where content matters too, it offers only what is known to be
there, and the model is left to choose.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from jobwire.job.messages import Json

# No dot within a line: a model that may write one runs on with the next number in the same line.
_LINE: Final = 'line ::= [A-Z] [a-zA-Z0-9 ,\'-]{8,110} "."'


def numbered_list(most: int) -> str:
    """Two to `most` lines: `1. A short sentence.`"""
    rules = ["root ::= s1", _LINE]
    for n in range(1, most + 1):
        rest = "" if n == most else f' "\\n" s{n + 1}' if n == 1 else f' ("\\n" s{n + 1})?'
        rules.append(f's{n} ::= "{n}. " line{rest}')
    return "\n".join(rules)


def one_of(texts: Iterable[str]) -> str:
    """Exactly one of these."""
    return "root ::= " + " | ".join(map(_literal, texts))


def an_object(values: Mapping[str, Sequence[Json]]) -> str:
    """A JSON object with exactly these members, each with one of its values."""
    parts: list[str] = []
    rules: list[str] = []
    for number, (name, choices) in enumerate(values.items()):
        start = ", " if number else "{"
        parts.append(f"{_literal(f'{start}{_json(name)}: ')} v{number}")
        rules.append(f"v{number} ::= " + " | ".join(_literal(_json(each)) for each in choices))
    return "\n".join([f'root ::= {" ".join(parts)} "}}"', *rules])


def _json(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def _literal(text: str) -> str:
    """GBNF writes text as JSON does."""
    return _json(text)
