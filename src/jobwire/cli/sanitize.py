"""Escapes control characters in text of others. They could move the cursor, change colours, set the
window title or hide what follows.

Every command that prints parts of jobs uses it; for JSON too, since the eight-bit escape code
(U+009B) needs no escape in JSON.
"""

import re
from typing import Final

# C0 except tab and line feed, DEL and C1, line and paragraph separators, direction marks, lone
# surrogates, and invisible tags.
_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\U000e0000-\U000e007f]"
)
_UNSAFE_IN_LINE: Final = re.compile(f"[\t\n]|{_UNSAFE.pattern}")
# Does not match inside a string: a JSON string has no line end.
_NUMBERS: Final = re.compile(r"\[\n\s+(-?\d[^\s,\]]*(?:,\n\s+-?\d[^\s,\]]*)*)\n\s*\]")
_MAX_NUMBERS: Final = 12
_FIRST_NUMBERS: Final = 4


def text(value: str) -> str:
    """Escape text of several lines."""
    return _UNSAFE.sub(_escaped, value.replace("\r\n", "\n"))


def line(value: str) -> str:
    """Escape text that must stay on one line."""
    return _UNSAFE_IN_LINE.sub(_escaped, value)


def json_text(encoded: bytes) -> str:
    """Escape JSON without changing its value: unsafe characters occur only inside strings."""
    return _UNSAFE.sub(_as_json, encoded.decode())


def pretty(value: object) -> str:
    """Format JSON for a terminal: a list of numbers on one line, and only the first of many. JSON
    output (`--json`, or a pipe) is complete."""
    import msgspec

    indented = msgspec.json.format(msgspec.json.encode(value), indent=2)
    return _NUMBERS.sub(_row, json_text(indented))


def _row(found: re.Match[str]) -> str:
    numbers = [each.strip() for each in found[1].split(",")]
    if len(numbers) <= _MAX_NUMBERS:
        return f"[{', '.join(numbers)}]"
    return f"[{', '.join(numbers[:_FIRST_NUMBERS])}, … {len(numbers)} numbers]"


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _as_json(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
