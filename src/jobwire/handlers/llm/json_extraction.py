"""Reads JSON out of what models write: whole, half, or wrapped in prose. Pure."""

import json
import re
from functools import cache
from typing import Final, cast

import msgspec

from jobwire.job.messages import Json

_STRING: Final = r'"((?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*)'
_CLOSED: Final = re.compile(_STRING + r'"|\]')
_HALF_A_PAIR: Final = re.compile("[\ud800-\udbff]$")


def an_object(text: str) -> dict[str, Json] | None:
    """The object that the text is, or holds; None where there is none."""
    inside = text[text.find("{") : text.rfind("}") + 1]
    for candidate in (text, inside):
        try:
            read = msgspec.json.decode(candidate)
        except (msgspec.DecodeError, UnicodeError):
            continue
        if isinstance(read, dict):
            return cast("dict[str, Json]", read)
    return None


def closed_strings(text: str, member: str) -> list[str]:
    """The strings of a list that are complete, while the object around it still grows."""
    found = _opening(member, r"\[").search(text)
    strings: list[str] = []
    for match in _CLOSED.finditer(text, found.end()) if found else ():
        if match[0] == "]":
            break
        strings.append(_decoded(match[1]))
    return strings


def growing_string(text: str, member: str) -> str:
    """As much of a string as there is, while the object around it still grows."""
    found = _opening(member, _STRING).search(text)
    return _decoded(found[1]) if found else ""


@cache
def _opening(member: str, then: str) -> re.Pattern[str]:
    return re.compile(rf'"{member}"\s*:\s*{then}')


def _decoded(inner: str) -> str:
    """The text that the inside of a JSON string means, as far as it can be told yet."""
    try:
        text = cast(str, json.loads(f'"{inner}"', strict=False))
    except ValueError:  # an escape that does not exist
        return ""
    # The other half of a character may be on its way; half a character within is nobody's.
    return _HALF_A_PAIR.sub("", text).encode("utf-8", "replace").decode()
