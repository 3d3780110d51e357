"""How deep JSON from elsewhere may nest, and which of its numbers nobody can read. Imports no other
module of jobwire.

A decoder alone stops where the interpreter's stack ends: at a thousand levels in Python 3.11, at
ten thousand in 3.13. What one program accepts, another one must be able to read.
"""

import math
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

_PERHAPS_LARGE: Final = re.compile(rb"[0-9][eE]|[0-9]{300}")
_NUMBER: Final = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_MAX_DIGITS: Final = 4300
"""Most digits of an integer that Python converts."""

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


def has_large_number(text: bytes) -> bool:
    """Whether JSON has a number that decoders refuse, such as `1e400`; of valid JSON."""
    if not _PERHAPS_LARGE.search(text):
        return False
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    numbers = (found[0] for found in _NUMBER.finditer(_STRING.sub(b"", text)))
    return any(_is_large(number) for number in numbers)


def _is_large(number: bytes) -> bool:
    if number.lstrip(b"-").isdigit():
        return len(number) > _MAX_DIGITS
    return math.isinf(float(number))


def bounded(decode: Callable[[bytes | str], T]) -> Callable[[bytes | str], T]:
    """The same decoder, which raises TooDeep for what is nested too deeply."""

    def decode_bounded(text: bytes | str) -> T:
        if is_too_deep(text):
            raise TooDeep
        return decode(text)

    return decode_bounded
