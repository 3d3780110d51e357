"""Extracts JSON from model output: complete, incomplete or inside prose. Pure."""

import json
import re
from functools import cache
from typing import Final, cast

import msgspec

from jobwire.job.messages import Json

_STRING: Final = r'"((?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*)'
_CLOSED: Final = re.compile(_STRING + r'"|\]')
_HIGH_SURROGATE: Final = re.compile("[\ud800-\udbff]$")


def json_object(text: str) -> dict[str, Json] | None:
    """The object that the text is or contains."""
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
    """The complete strings of a list member in an incomplete object."""
    found = _opening(member, r"\[").search(text)
    strings: list[str] = []
    for match in _CLOSED.finditer(text, found.end()) if found else ():
        if match[0] == "]":
            break
        strings.append(_decoded(match[1]))
    return strings


def growing_string(text: str, member: str) -> str:
    """The string member so far in an incomplete object."""
    found = _opening(member, _STRING).search(text)
    return _decoded(found[1]) if found else ""


@cache
def _opening(member: str, then: str) -> re.Pattern[str]:
    return re.compile(rf'"{member}"\s*:\s*{then}')


def _decoded(inner: str) -> str:
    """Decode the inside of a JSON string that may be incomplete."""
    try:
        text = cast(str, json.loads(f'"{inner}"', strict=False))
    except ValueError:  # an invalid escape
        return ""
    # The low surrogate of the last character may follow; any other lone surrogate is replaced.
    return _HIGH_SURROGATE.sub("", text).encode("utf-8", "replace").decode()
