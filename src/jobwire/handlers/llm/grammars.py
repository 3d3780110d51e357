"""GBNF grammars and JSON schemas that constrain a model's answer. Pure.

A grammar enforces the form. Where the content matters too, it lists the known values, and the model
selects one.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from jobwire.job.messages import Json

# No dot within a line: after one, a model writes the next number into the same line.
_LINE: Final = "\n".join(
    (
        "line ::= latin | other",
        'latin ::= [A-Z] [a-zA-Z0-9 ,\'-]{8,110} "."',
        # Scripts without ASCII letters; some end a sentence with an ideographic full stop.
        'other ::= [\\u00A1-\\U0010FFFF] more{2,110} ("." | "\\u3002")',
        "more ::= [a-zA-Z0-9 ,'\\u00A1-\\u3001\\u3003-\\U0010FFFF-]",
    )
)


def numbered_list(max_items: int) -> str:
    """Two to `max_items` lines: `1. A short sentence.`"""
    rules = ["root ::= s1", _LINE]
    for n in range(1, max_items + 1):
        rest = "" if n == max_items else f' "\\n" s{n + 1}' if n == 1 else f' ("\\n" s{n + 1})?'
        rules.append(f's{n} ::= "{n}. " line{rest}')
    return "\n".join(rules)


def one_of(texts: Iterable[str]) -> str:
    """Exactly one of these texts."""
    return "root ::= " + " | ".join(map(_json, texts))


def object_schema(properties: Mapping[str, Json]) -> dict[str, Json]:
    """The schema of an object with exactly these members; strict servers require all of them."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [*properties],
        "additionalProperties": False,
    }


def _json(value: Json) -> str:
    """JSON text; a JSON string is also a GBNF literal."""
    return msgspec.json.encode(value).decode()
