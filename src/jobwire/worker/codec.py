"""Encodes what handlers return and report as JSON text.

Called where the handler ran (loop, thread or child process), so that a large result of a thread or
process costs the event loop nothing. Values without a JSON form are refused: NaN, cycles, lone
surrogates.
"""

import math
from typing import Final, Protocol, cast, runtime_checkable

import msgspec

from jobwire.json_depth import is_too_deep

MAX_RESULT_BYTES: Final = 1_048_576
MAX_REPORT_BYTES: Final = 65_536


class NotJson(ValueError):
    """The value has no JSON form; the message has the reason."""


class JsonTooLarge(ValueError):
    """The JSON form is larger than the wire allows."""


@runtime_checkable
class _Model(Protocol):
    """A pydantic model, or any class with the same method."""

    def model_dump(self, *, mode: str) -> object: ...


def _unknown(value: object) -> object:
    if isinstance(value, _Model):
        return value.model_dump(mode="json")
    raise NotJson(f"a value of type {type(value).__name__} has no JSON form")


_encode: Final = msgspec.json.Encoder(enc_hook=_unknown).encode


def to_json(value: object, limit_bytes: int = MAX_RESULT_BYTES) -> str:
    """The value as JSON text, or NotJson, or JsonTooLarge."""
    if value is None:
        return "null"
    try:
        raw = _encode(value)
        if len(raw) > limit_bytes:
            size = f"{len(raw):,} bytes of JSON are more than the {limit_bytes:,} allowed"
            raise JsonTooLarge(size)
        if is_too_deep(raw):
            raise NotJson("it is nested too deeply")
        # The encoder writes NaN and Infinity as null, which a reader would take for "no value".
        if b"null" in raw and _contains_nan(msgspec.to_builtins(value, enc_hook=_unknown)):
            raise NotJson("it contains NaN or Infinity")
        return raw.decode()
    except (NotJson, JsonTooLarge):
        raise
    except RecursionError:
        raise NotJson("it is nested too deeply or contains itself") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise NotJson(str(error)) from None
    except Exception as error:  # `model_dump` of the user's class
        raise NotJson(f"{type(error).__name__} while it was encoded") from error


def _contains_nan(value: object) -> bool:
    """Level by level: a deep value must not need a deep stack."""
    level: list[object] = [value]
    while level:
        below: list[object] = []
        for each in level:
            if isinstance(each, float) and not math.isfinite(each):
                return True
            if isinstance(each, dict):
                below.extend(cast("dict[object, object]", each).values())
            elif isinstance(each, list | tuple):
                below.extend(cast("list[object]", each))
        level = below
    return False
