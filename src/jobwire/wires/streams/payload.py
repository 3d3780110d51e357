"""What a payload must be to be accepted: a JSON object, strict, small and shallow (J-8).

Called by whoever accepts a job, on the text as received, which is then stored byte for byte. It
refuses; it never repairs.
"""

import json
from collections.abc import Callable
from math import isinf
from typing import Final, NoReturn, cast

import msgspec

from jobwire.job.errors import RefusedError
from jobwire.wires.streams.contract import MAX_PAYLOAD_BYTES, MAX_PAYLOAD_DEPTH, Code

# A lone half of a surrogate pair is well-formed JSON and no text; only an escape can say it.
_SURROGATE: Final = "\\ud"
_MAX_DIGITS: Final = 4300
"""Digits of an integer that Python converts; with more, a reader of the payload fails."""
_SHOWN: Final = 100
"""Characters of a name in an error message."""


def check_payload(text: str) -> None:
    """Raise RefusedError with one clear line unless `text` may become a job's payload."""
    if _size(text) > MAX_PAYLOAD_BYTES:
        raise RefusedError(
            f"payload is larger than {MAX_PAYLOAD_BYTES} bytes",
            code="payload_too_large",
            status=413,
        )
    try:
        value = read_strictly(text)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise _refused(str(error)) from None
    if not isinstance(value, dict):
        raise _refused("it must be an object")
    # Fewer brackets than levels: no need to look. A flat object is most payloads.
    brackets = text.count("{") + text.count("[")
    if brackets > MAX_PAYLOAD_DEPTH and _too_deep_below(cast("object", value)):
        raise _too_deep()
    if "\\" in text and _SURROGATE in text.lower():
        try:
            # As it stands: no number is worked out, however large.
            msgspec.json.decode(text, type=msgspec.Raw)
        except (msgspec.DecodeError, ValueError, RecursionError):
            raise _refused("it holds half of a surrogate pair") from None


def read_strictly(text: str) -> object:
    """What a JSON text says, but for its numbers; ValueError where it says a thing twice, what is
    no JSON, or a number that readers cannot hold. For a look at its form: numbers come out as
    their lengths."""
    if len(text) > _MAX_DIGITS:
        return _LONG.decode(text)
    if text.startswith("{"):
        # Most of them, and without the decoder's own search for blanks around.
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


def _no_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"the member {name[:_SHOWN]!r} stands there twice")
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


def _too_deep_below(value: object) -> bool:
    level: list[object] = [value]
    for _ in range(MAX_PAYLOAD_DEPTH):
        below: list[object] = []
        for one in level:
            if isinstance(one, dict):
                below.extend(one.values())  # pyright: ignore[reportUnknownArgumentType] - any JSON
            elif isinstance(one, list):
                below.extend(one)  # pyright: ignore[reportUnknownArgumentType] - any JSON
        level = below
        if not level:
            return False
    return any(isinstance(one, dict | list) for one in level)


def _decoder(parse_int: Callable[[str], int]) -> json.JSONDecoder:
    # Numbers are stored as text: no rounding.
    return json.JSONDecoder(
        object_pairs_hook=_no_twins,
        parse_constant=_no_constant,
        parse_int=parse_int,
        parse_float=_finite,
    )


_STRICT: Final = _decoder(len)
_LONG: Final = _decoder(_convertible)
"""For texts that are long enough to hold an integer with too many digits."""


# The decoder's C part, which its type stubs leave out.
_scan = cast("Callable[[str, int], tuple[object, int]]", vars(_STRICT)["scan_once"])


def _refused(why: str) -> RefusedError:
    return RefusedError(f"payload is not acceptable: {why}", code=Code.INVALID_PAYLOAD)


def _too_deep() -> RefusedError:
    return _refused(f"it is nested deeper than {MAX_PAYLOAD_DEPTH} levels")
