"""The parameters of a handler, read once when it is registered, and the check of payloads.

Called by `app.py`, and by a child process for its handler. A handler has one or two parameters: the
context (annotated `Context`, or named `ctx` or `context`) and the payload (any other name). If
either is annotated with a type, payloads are checked against it.
"""

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol, cast, runtime_checkable

import msgspec

from jobwire.job.messages import RAW, Json
from jobwire.schema_hints import hint
from jobwire.text import msgspec_fault
from jobwire.worker.codec import to_json
from jobwire.worker.context import Context, SyncContext

_CONTEXT_NAMES: Final = ("ctx", "context")


class InvalidPayload(Exception):
    """The payload does not fit the handler's type; the message has the problem and the place."""


class HandlerKind(Enum):
    """Where a handler runs."""

    ASYNC = "async"
    THREAD = "thread"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class Signature:
    """How to call a handler."""

    is_async: bool
    context_at: int | None
    payload_at: int | None
    payload_type: object
    """None if any payload is valid."""
    result_type: object = None
    """The annotated type of the result; None without one."""

    def check(self, payload: Json) -> object:
        """The payload converted to the handler's type, or InvalidPayload."""
        if self.payload_type is None:
            return payload
        try:
            return _converted(payload, self.payload_type)
        except InvalidPayload:
            if _is_raw(payload):
                raise InvalidPayload("payload: it is not a JSON object") from None
            raise

    def arguments(self, context: Context[Any]) -> tuple[object, ...]:
        """The arguments of the handler."""
        if self.payload_at is None:
            return (context,)
        if self.context_at is None:
            return (context.payload,)
        pair = (context, context.payload)
        return pair if self.context_at == 0 else pair[::-1]

    def schema_json(self) -> str:
        """JSON Schema of the payload; empty if any payload is valid."""
        if self.payload_type is None:
            return ""
        if isinstance(self.payload_type, _PydanticModel):
            return msgspec.json.encode(self.payload_type.model_json_schema()).decode()
        return msgspec.json.encode(msgspec.json.schema(self.payload_type)).decode()


def read(function: Callable[..., object]) -> Signature:
    """The signature of a handler; TypeError if the function cannot be one."""
    name = getattr(function, "__qualname__", repr(function))
    parameters = _positional(function, name)
    hints = _hints(function, name)
    context_at = payload_at = None
    payload_type: object = None
    for at, parameter in enumerate(parameters):
        hint = hints.get(parameter)
        if _is_context(hint) or (hint is None and parameter in _CONTEXT_NAMES):
            context_at = at
            payload_type = next(iter(typing.get_args(hint)), payload_type)
        else:
            payload_at = at
            payload_type = hint if hint is not None else payload_type
    if len(parameters) != (context_at is not None) + (payload_at is not None) or not parameters:
        raise TypeError(
            f"handler {name}: takes ({', '.join(parameters)}); a handler takes the context, the "
            "payload, or one of each, as in `async def chat(ctx: Context, payload: Chat)`"
        )
    if _is_anything(payload_type):
        payload_type = None
    result_type = hints.get("return")
    if result_type is type(None) or _is_anything(result_type):
        result_type = None
    is_async = inspect.iscoroutinefunction(_routine(function))
    if is_async and any(
        (typing.get_origin(each) or each) is SyncContext for each in hints.values()
    ):
        raise TypeError(
            f"handler {name}: an `async def` takes a Context; SyncContext is for a `def`"
        )
    signature = Signature(is_async, context_at, payload_at, payload_type, result_type)
    try:
        signature.schema_json()
    except TypeError as error:
        raise TypeError(f"handler {name}: no payload can be checked as {error}") from error
    return signature


def _positional(function: Callable[..., object], name: str) -> list[str]:
    found: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            if parameter.default is parameter.empty:
                found.append(parameter.name)
        elif parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            raise TypeError(
                f"handler {name}: the keyword parameter {parameter.name!r} needs a default"
            )
    return found


def _hints(function: Callable[..., object], name: str) -> dict[str, object]:
    try:
        return typing.get_type_hints(_routine(function))
    except NameError as error:
        raise TypeError(
            f"handler {name}: the annotation {error.name!r} cannot be found; define the type at "
            "the top level of its module"
        ) from error


def _is_context(hint: object) -> bool:
    return (typing.get_origin(hint) or hint) in (Context, SyncContext)


def _is_anything(hint: object) -> bool:
    """Also the recursive alias `Json`: its own text stays in it, however far it was resolved."""
    return hint in (Any, object, Json) or cast(str, Json) in repr(hint)


def _routine(function: Callable[..., object]) -> Callable[..., object]:
    """The code of a handler, which may be an object with `__call__`."""
    return function if inspect.isroutine(function) else type(function).__call__


def plain(value: object) -> Json:
    """The value after encoding to JSON and decoding."""
    return cast(Json, msgspec.json.decode(to_json(value)))


# ── checking ─────────────────────────────────────────────────────────────────────────────────────


@runtime_checkable
class _PydanticModel(Protocol):
    """A pydantic model class, recognised by its methods: pydantic is not a dependency."""

    def model_validate(self, obj: object) -> object: ...
    def model_json_schema(self) -> dict[str, object]: ...


class _PydanticError(Protocol):
    def errors(self) -> list[dict[str, object]]: ...


def _converted(payload: Json, payload_type: object) -> object:
    if isinstance(payload_type, _PydanticModel):
        try:
            return payload_type.model_validate(payload)
        except ValueError as error:
            raise InvalidPayload(_pydantic_message(error)) from None
    try:
        return msgspec.convert(payload, cast("type[object]", payload_type))
    except msgspec.ValidationError as error:
        raise InvalidPayload(_msgspec_message(error, payload_type)) from None


def _is_raw(payload: Json) -> bool:
    """Whether it stands for a text that is no JSON object (J-38)."""
    return isinstance(payload, dict) and [*payload] == [RAW] and isinstance(payload[RAW], str)


def _msgspec_message(error: msgspec.ValidationError, payload_type: object) -> str:
    problem, place = msgspec_fault(error)
    more = hint(msgspec.json.schema(payload_type), place, problem)
    return f"payload{place}: {problem[:1].lower()}{problem[1:]}{more}"


def _pydantic_message(error: ValueError) -> str:
    first = cast(_PydanticError, error).errors()[0]
    place = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}"
        for part in cast("tuple[int | str, ...]", first["loc"])
    )
    problem = str(first["msg"])
    return f"payload{place}: {problem[:1].lower()}{problem[1:]}"
