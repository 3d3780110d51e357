"""How deep JSON from elsewhere may nest. Imports no other module of jobwire.

A decoder alone stops where the interpreter's stack ends: at a thousand levels in Python 3.11, at
ten thousand in 3.13. What one program accepts, another one must be able to read.
"""

import re
from collections.abc import Callable
from itertools import accumulate
from typing import Final, TypeVar

import msgspec

MAX_DEPTH: Final = 512
"""Levels; every Python that we run on can decode and encode them."""

_STRING: Final = re.compile(rb'"[^"]*"?')
_OTHERS: Final = bytes(set(range(256)) - set(b'[]{}"'))
# One level up is 1 and one level down is -1 as a signed byte.
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")

T = TypeVar("T")


class TooDeep(msgspec.DecodeError):
    """The JSON is nested deeper than `MAX_DEPTH`."""

    def __init__(self) -> None:
        super().__init__(f"it is nested deeper than {MAX_DEPTH} levels")


def is_too_deep(text: bytes | str, most: int = MAX_DEPTH) -> bool:
    """Whether JSON, which need not be valid, is nested deeper than so many levels."""
    # With fewer brackets than levels it cannot be: most texts are flat.
    if isinstance(text, str):
        if text.count("[") + text.count("{") <= most:
            return False
        text = text.encode(errors="replace")
    elif text.count(b"[") + text.count(b"{") <= most:
        return False
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Quotes side by side are an empty string, or the end of a string and the beginning of the next.
    brackets = text.translate(None, _OTHERS).replace(b'""', b"")
    if b'"' in brackets:
        brackets = _STRING.sub(b"", brackets)
    return max(accumulate(memoryview(brackets.translate(_STEPS)).cast("b")), default=0) > most


def bounded(decode: Callable[[bytes | str], T]) -> Callable[[bytes | str], T]:
    """The same decoder, which raises TooDeep for what is nested too deeply."""

    def decode_bounded(text: bytes | str) -> T:
        if is_too_deep(text):
            raise TooDeep
        return decode(text)

    return decode_bounded
