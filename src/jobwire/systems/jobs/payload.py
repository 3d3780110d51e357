"""Checks a payload: a strict JSON object, bounded in size and depth (J-8).

Called on the text as received, which is then stored byte for byte. Nothing is repaired.
"""

import json
from collections.abc import Callable
from math import isinf
from typing import Final, NoReturn, cast

import msgspec

from jobwire.job.errors import RefusedError
from jobwire.json_depth import is_too_deep
from jobwire.systems.jobs.contract import MAX_PAYLOAD_BYTES, MAX_PAYLOAD_DEPTH, Code

_decode: Final = msgspec.json.Decoder[object]().decode
_encode: Final = msgspec.json.Encoder().encode
# A lone surrogate is well-formed JSON and no valid text; only an escape can express it.
_SURROGATE: Final = "\\ud"
_MAX_DIGITS: Final = 4300
"""Most digits of an integer that Python converts; with more, a reader of the payload fails."""
_SHOWN: Final = 100
"""Characters of a name in an error message."""


def check_payload(text: str) -> None:
    """Raise RefusedError unless `text` is a valid payload."""
    if _size(text) > MAX_PAYLOAD_BYTES:
        raise RefusedError(
            f"payload is larger than {MAX_PAYLOAD_BYTES} bytes",
            code="payload_too_large",
            status=413,
        )
    if is_too_deep(text, MAX_PAYLOAD_DEPTH):
        raise _refused(f"it is nested deeper than {MAX_PAYLOAD_DEPTH} levels")
    try:
        value = _read_plain(text) or read_strictly(text)
    except ValueError as error:
        raise _refused(str(error)) from None
    if not isinstance(value, dict):
        raise _refused("it must be an object")
    if "\\" in text and _SURROGATE in text.lower():
        try:
            # As raw text: no number is converted.
            msgspec.json.decode(text, type=msgspec.Raw)
        except (msgspec.DecodeError, ValueError):
            raise _refused("it contains a lone surrogate") from None


def _read_plain(text: str) -> object:
    """The value of a short text without escapes and repeated members: most payloads, at a third of
    the cost of `read_strictly`. None if the text may be anything else."""
    if len(text) > _MAX_DIGITS or "\\" in text:
        return None
    try:
        value = _decode(text)
        written = _encode(value)
    except msgspec.DecodeError:
        return None
    # A repeated member is read once: two quotes are missing.
    return value if written.count(b'"') == text.count('"') else None


def read_strictly(text: str) -> object:
    """Parse JSON to check its form; numbers become their lengths. ValueError for a repeated member,
    invalid JSON, or a number that readers cannot represent."""
    if len(text) > _MAX_DIGITS:
        return _LONG.decode(text)
    if text.startswith("{"):
        # The usual case, without the decoder's search for surrounding blanks.
        try:
            value, end = _scan(text, 0)
        except StopIteration:
            value, end = None, -1
        if end == len(text):
            return value
    return _STRICT.decode(text)


def _size(text: str) -> int:
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise _refused("it is not valid UTF-8") from None


def _unique_members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"the member {name[:_SHOWN]!r} is repeated")
            seen.add(name)
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> int:
    if isinf(float(digits)):
        raise ValueError(f"the number {digits[:_SHOWN]} is out of range")
    return len(digits)


def _convertible(digits: str) -> int:
    size = len(digits)
    if size > _MAX_DIGITS and len(digits.lstrip("-")) > _MAX_DIGITS:
        raise ValueError(f"an integer has {size} digits; send more than {_MAX_DIGITS} as a string")
    return size


def _decoder(parse_int: Callable[[str], int]) -> json.JSONDecoder:
    # Numbers are stored as text: no rounding.
    return json.JSONDecoder(
        object_pairs_hook=_unique_members,
        parse_constant=_no_constant,
        parse_int=parse_int,
        parse_float=_finite,
    )


_STRICT: Final = _decoder(len)
_LONG: Final = _decoder(_convertible)
"""For texts that are long enough to hold an integer with too many digits."""


# The decoder's C part, which its type stubs leave out.
_scan = cast("Callable[[str, int], tuple[object, int]]", vars(_STRICT)["scan_once"])


def _refused(reason: str) -> RefusedError:
    return RefusedError(f"payload is not acceptable: {reason}", code=Code.INVALID_PAYLOAD)
