"""JSON in the types of annotations: results of steps, signals, results of jobs.

A type is of msgspec's kinds (plain types, containers, dataclasses, TypedDicts, Structs), or has
models of pydantic anywhere in it. Whether it can be read is known before there is any JSON.
pydantic is not a dependency: its models are known by their methods. Pure.
"""

import inspect
import sys
import typing
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final

import msgspec

Read = Callable[[bytes], Any]

_ANYTHING: Final = (None, Any, object)


def reader(kind: object) -> Read:
    """Reads JSON text as this type, or raises ValueError; TypeError if nothing could be."""
    try:
        return _cached(kind)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _reader(kind)


def converted(value: object, kind: object) -> Any:
    """Decoded JSON as this type; ValueError if it does not fit."""
    return value if kind in _ANYTHING else reader(kind)(msgspec.json.encode(value))


def _reader(kind: object) -> Read:
    if kind in _ANYTHING:
        return msgspec.json.Decoder().decode
    if _is_model(kind):
        return _reader_of_model(kind)
    try:
        known = _custom_types(msgspec.inspect.type_info(kind))
        decode = msgspec.json.Decoder(kind, dec_hook=_read_model).decode
    except TypeError:
        # Such as a union of two models, of which msgspec could not choose one.
        if (read := _reader_of_pydantic(kind)) is not None:
            return read
        raise
    if unknown := next((each for each in known if not _is_model(each)), None):
        raise TypeError(
            f"{getattr(unknown, '__qualname__', unknown)}, which JSON cannot be read as"
        )
    return decode


_cached: Final = lru_cache(maxsize=1_024)(_reader)


def _is_model(kind: object) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_validate")


def _reader_of_model(kind: Any) -> Read:
    validate = getattr(kind, "model_validate_json", None)
    if validate is None:
        return lambda raw: kind.model_validate(msgspec.json.decode(raw))
    if "by_name" in inspect.signature(validate).parameters:  # our JSON has names, not aliases
        return partial(validate, by_alias=True, by_name=True)
    return validate


def _read_model(kind: type[Any], value: object) -> object:
    """Called by msgspec for a type that it does not know: a model, as has been checked."""
    return _reader_of_model(kind)(msgspec.json.encode(value))


def _reader_of_pydantic(kind: object) -> Read | None:
    """None where pydantic is not used, or cannot read the type either."""
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is None or not _has_model(kind, set()):
        return None
    try:
        validate = pydantic.TypeAdapter(kind).validate_json
        if "by_name" in inspect.signature(validate).parameters:
            return partial(validate, by_alias=True, by_name=True)
        return validate
    except pydantic.PydanticUserError:
        return None


def _has_model(kind: Any, seen: set[int]) -> bool:
    if _is_model(kind):
        return True
    if id(kind) in seen:
        return False
    seen.add(id(kind))
    parts = list(typing.get_args(kind))
    if isinstance(kind, type):
        parts += typing.get_type_hints(kind).values()
    return any(_has_model(part, seen) for part in parts)


def _custom_types(info: object) -> list[type[Any]]:
    """The types in a description by msgspec that msgspec does not know itself."""
    found, seen, left = list[type[Any]](), set[int](), [info]
    while left:
        each = left.pop()
        if isinstance(each, tuple | list):
            left += each
        elif isinstance(each, msgspec.inspect.CustomType):
            found.append(each.cls)
        elif (
            isinstance(each, msgspec.inspect.Type | msgspec.inspect.Field) and id(each) not in seen
        ):
            seen.add(id(each))
            left += [getattr(each, name) for name in each.__struct_fields__]
    return found
