"""Tools: functions that the task `tool` may call, with parameters read from their signature.

A tool is an ordinary Python function with typed parameters and a docstring:

    @app.tool
    def get_weather(city: str, unit: Literal["C", "F"] = "C") -> str:
        "The weather in a city now."

Used by `tool.py`. Nothing here calls the function.
"""

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import msgspec

from jobwire.job.messages import CONFIRM_ATTRIBUTE, Json

_KINDS: Final[Mapping[object, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
}
Function = Callable[..., object]


class BadArguments(ValueError):
    """Arguments that do not match the function; the message names the place."""


@dataclass(frozen=True, slots=True)
class ToolParameter:
    """One parameter of a tool."""

    name: str
    type: object
    kind: str
    """The JSON Schema type; empty for a choice."""
    choices: Sequence[str | int | bool]
    """The values of a `Literal`."""
    required: bool

    def schema(self) -> dict[str, Json]:
        """The JSON schema of its values."""
        return {"enum": list(self.choices)} if self.choices else {"type": self.kind}


@dataclass(frozen=True, slots=True)
class Tool:
    """A registered function and its schema."""

    name: str
    description: str
    parameters: Sequence[ToolParameter]
    function: Function
    struct: type[msgspec.Struct]
    confirm: bool = False
    """Whether the caller must confirm a call."""

    def check(self, arguments: object) -> dict[str, object]:
        """Validate arguments; BadArguments if they do not match. An optional argument may also be
        null."""
        optional = {each.name for each in self.parameters if not each.required}
        members = arguments
        if isinstance(arguments, dict):
            items = typing.cast("dict[str, object]", arguments).items()
            members = {k: v for k, v in items if v is not None or k not in optional}
        try:
            read = msgspec.convert(members, self.struct)
        except msgspec.ValidationError as error:
            raise BadArguments(str(error)) from None
        named = typing.cast("Mapping[str, object]", members)
        values = {p.name: getattr(read, p.name) for p in self.parameters if p.name in named}
        # A float parameter takes an int too, with all its digits.
        return {k: named[k] if type(named[k]) is int else value for k, value in values.items()}


@lru_cache(maxsize=1024)
def as_tool(name: str, function: Function) -> Tool:
    """Read a function's signature; TypeError, with one line, if it cannot be a tool."""
    if inspect.iscoroutinefunction(function):
        raise TypeError(f"tool {name}: must be a plain `def`; it runs in a thread")
    docstring = inspect.getdoc(function)
    if not docstring:
        raise TypeError(f"tool {name}: needs a docstring, its description for the model")
    hints = typing.get_type_hints(function)
    parameters = [
        _parameter(name, parameter, hints.get(parameter.name))
        for parameter in inspect.signature(function).parameters.values()
    ]
    fields = [
        (each.name, each.type) if each.required else (each.name, each.type, None)
        for each in parameters
    ]
    struct = msgspec.defstruct(name, fields, forbid_unknown_fields=True, kw_only=True)
    confirm = bool(getattr(function, CONFIRM_ATTRIBUTE, False))
    return Tool(name, docstring.partition("\n\n")[0], parameters, function, struct, confirm)


def _parameter(tool_name: str, parameter: inspect.Parameter, hint: object) -> ToolParameter:
    place = f"tool {tool_name}: the parameter {parameter.name!r}"
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise TypeError(f"{place} cannot be passed by name")
    required = parameter.default is parameter.empty
    plain = _without_none(hint)
    if typing.get_origin(plain) is Literal:
        return ToolParameter(parameter.name, plain, "", typing.get_args(plain), required)
    if plain not in _KINDS:
        raise TypeError(f"{place} needs a type: str, int, float, bool or Literal[…]")
    return ToolParameter(parameter.name, plain, _KINDS[plain], (), required)


def _without_none(hint: object) -> object:
    """`str | None` as `str`: an optional argument is left out, not null."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        rest = [each for each in typing.get_args(hint) if each is not types.NoneType]
        return rest[0] if len(rest) == 1 else hint
    return hint
