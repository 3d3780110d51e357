"""Extracts JSON from model output: complete, incomplete or inside prose. Pure."""

import json
import re
from functools import cache
from typing import Final, cast

import msgspec

from jobwire.job.messages import Json
from jobwire.json_depth import bounded

_STRING: Final = r'"((?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*)'
_CLOSED_STRING: Final = re.compile(_STRING + '"')
_STRING_OR_BRACE: Final = re.compile(_STRING + r'"|[{}]')
_TITLES: Final = ("title", "step", "description", "text", "name", "action", "task", "content")
_FENCED: Final = re.compile(r"```[a-z]*\n(.*?)\n?```", re.DOTALL)
_HIGH_SURROGATE: Final = re.compile("[\ud800-\udbff]$")
# A model may also nest brackets until its tokens are used up.
_decode: Final = bounded(msgspec.json.Decoder().decode)
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeError)
NO_JSON: Final = object()
"""What `json_value` returns for a text that is not JSON."""


def json_value(text: str) -> object:
    """The value that the text is, or that its only fenced block is."""
    fenced = _FENCED.fullmatch(text.strip().removeprefix("\ufeff"))
    try:
        return _decode(fenced[1] if fenced else text.removeprefix("\ufeff"))
    except _UNREADABLE:
        return NO_JSON


def json_object(text: str) -> dict[str, Json] | None:
    """The object that the text is or contains."""
    inside = text[text.find("{") : text.rfind("}") + 1]
    for candidate in (text, inside):
        try:
            read = _decode(candidate)
        except _UNREADABLE:
            continue
        if isinstance(read, dict):
            return cast("dict[str, Json]", read)
    return None


def closed_items(text: str, member: str) -> list[str]:
    """The complete items of a list member in an incomplete object: strings, or objects with a
    string, of which the first of `_TITLES` counts."""
    found = _opening(member, r"\[").search(text)
    items: list[str] = []
    at = found.end() if found else len(text)
    while at < len(text):
        if text[at] in ", \t\r\n":
            at += 1
        elif (match := _CLOSED_STRING.match(text, at)) is not None:
            items.append(_decoded(match[1]))
            at = match.end()
        elif text[at] == "{" and (end := _object_end(text, at)):
            items.append(_title(text[at:end]))
            at = end
        else:
            break
    return items


def _object_end(text: str, start: int) -> int:
    """The end of the object that starts here; 0 while it is incomplete."""
    depth = 0
    for found in _STRING_OR_BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if depth == 0:
            return found.end()
    return 0


def _title(text: str) -> str:
    """The title of a step that is an object."""
    read = json_object(text) or {}
    named = [read[name] for name in _TITLES if isinstance(read.get(name), str)]
    others = [value for value in read.values() if isinstance(value, str)]
    return str((named or others or [""])[0])


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
