"""Errors of steps, as the record of a job has them (D-4a).

An exception is stored with the name of its class, its text, and those of its arguments and
attributes that are plain values: enough to make it again in another process, without calling its
class.

It also carries the names of the steps that it has left, so that the next attempt calls those again
whose error has ended this one.
"""

import importlib
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import msgspec

from jobwire.job.errors import StepFailed

_STEPS: Final = "__jobwire_steps__"
_MAX_BYTES: Final = 4_096
_PLAIN: Final = (str, int, float, bool, type(None))


class _Stored(msgspec.Struct, omit_defaults=True):
    type: str
    """Its module, a colon, and its name there."""
    message: str
    attempt: int
    args: list[Any] | None = None
    """None: its text is its only argument."""
    attributes: dict[str, Any] = {}


_decode: Final = msgspec.json.Decoder(tuple[int, int, _Stored]).decode


def written(error: Exception, step: str, took_ms: int, attempt: int) -> str:
    """The field of an error that leaves a step."""
    attributes = vars(error)
    stored = _Stored(
        f"{type(error).__module__}:{type(error).__qualname__}",
        _text(error),
        attempt,
        list(error.args) if all(type(each) in _PLAIN for each in error.args) else None,
        {
            name: value
            for name, value in attributes.items()
            if type(value) in _PLAIN and not name.startswith("__")
        },
    )
    attributes.setdefault(_STEPS, set()).add(step)
    try:
        return f"[0,{took_ms},{_encoded(stored)}]"
    except (UnicodeError, msgspec.MsgspecError, OverflowError):  # such as lone surrogates
        stored = _Stored(stored.type, stored.message, attempt)
        return f"[0,{took_ms},{_encoded(stored)}]"


def read(text: str, step: str, function: Callable[..., object]) -> Exception:
    """The recorded error of the step that calls this function."""
    stored = _decode(text)[2]
    error = _made(stored, function) or StepFailed(step, stored.type, stored.message)
    vars(error).setdefault(_STEPS, set()).add(step)
    return error


def steps_of(error: BaseException) -> tuple[str, ...]:
    """The steps whose errors are this one, or among its causes."""
    return tuple(sorted({name for each in _chain(error) for name in vars(each).get(_STEPS, ())}))


def _chain(error: BaseException) -> Iterator[BaseException]:
    found, left = set[int](), [error]
    while left:
        each = left.pop()
        if id(each) in found:
            continue
        found.add(id(each))
        yield each
        left += [cause for cause in (each.__cause__, each.__context__) if cause is not None]
        if isinstance(each, BaseExceptionGroup):
            left += cast("tuple[BaseException, ...]", each.exceptions)


def _encoded(stored: _Stored) -> str:
    raw = msgspec.json.encode(stored)
    if len(raw) > _MAX_BYTES:
        raw = msgspec.json.encode(_Stored(stored.type, stored.message, stored.attempt))
    return raw.decode()


def _text(error: Exception) -> str:
    """Limited in length; user code may fail even here."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - `__str__` of the user's exception
        return ""
    return text.encode(errors="replace")[: _MAX_BYTES - 512].decode(errors="ignore")


def _made(stored: _Stored, function: Callable[..., object]) -> Exception | None:
    kind = _class(stored.type, function)
    if kind is None:
        return None
    try:
        error = kind.__new__(kind, *([stored.message] if stored.args is None else stored.args))
        error.args = (stored.message,) if stored.args is None else tuple(stored.args)
        vars(error).update(stored.attributes)
    except Exception:  # noqa: BLE001 - of the user's class
        return None
    return error


def _class(name: str, function: Callable[..., object]) -> type[Exception] | None:
    """The class of that name; None if it cannot be imported."""
    module, _, path = name.partition(":")
    try:
        if module == getattr(function, "__module__", None):
            # The program of a child process is no module.
            found: Any = getattr(function, "__globals__", None) or vars(
                importlib.import_module(module)
            )
        else:
            found = vars(importlib.import_module(module))
        first, *rest = path.split(".")
        found = found[first]
        for each in rest:
            found = getattr(found, each)
    except Exception:  # noqa: BLE001 - a module of the user may raise anything
        return None
    return found if isinstance(found, type) and issubclass(found, Exception) else None
