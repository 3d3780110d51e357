"""Functions that the task `tool` may call: what they take, read from their signature.

A tool is an ordinary Python function with typed parameters and a docstring:

    @app.tool
    def get_weather(city: str, unit: Literal["C", "F"] = "C") -> str:
        "The weather in a city now."

Read by `tool.py`. Nothing here runs one.
"""

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import msgspec

from jobwire.job.messages import Json

_KINDS: Final[Mapping[object, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
}
Function = Callable[..., object]


class BadArguments(ValueError):
    """What was given does not fit the function; says what and where."""


@dataclass(frozen=True, slots=True)
class ToolParameter:
    """One thing that a function wants to know."""

    name: str
    type: object
    kind: str
    """As JSON Schema calls it; empty for a choice."""
    choices: Sequence[str | int | bool]
    """All values there are, where they are few."""
    required: bool

    def schema(self) -> dict[str, Json]:
        """Which values it takes."""
        return {"enum": list(self.choices)} if self.choices else {"type": self.kind}


@dataclass(frozen=True, slots=True)
class Tool:
    """One function, as others may know it."""

    name: str
    description: str
    parameters: Sequence[ToolParameter]
    function: Function
    struct: type[msgspec.Struct]

    def check(self, arguments: object) -> dict[str, object]:
        """The arguments to call it with; BadArguments where they do not fit. What may be left out
        may also be null."""
        optional = {each.name for each in self.parameters if not each.required}
        given = arguments
        if isinstance(arguments, dict):
            members = typing.cast("dict[str, object]", arguments).items()
            given = {k: v for k, v in members if v is not None or k not in optional}
        try:
            read = msgspec.convert(given, self.struct)
        except msgspec.ValidationError as error:
            raise BadArguments(str(error)) from None
        named = typing.cast("Mapping[str, object]", given)
        return {p.name: getattr(read, p.name) for p in self.parameters if p.name in named}


@lru_cache(maxsize=1024)
def as_tool(name: str, function: Function) -> Tool:
    """What a function takes; TypeError with one clear line where it cannot be a tool."""
    if inspect.iscoroutinefunction(function):
        raise TypeError(f"tool {name}: must be a plain `def`; it is run in a thread")
    described = inspect.getdoc(function)
    if not described:
        raise TypeError(f"tool {name}: needs a docstring that says what it is for")
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
    return Tool(name, described.partition("\n\n")[0], parameters, function, struct)


def _parameter(tool_name: str, parameter: inspect.Parameter, hint: object) -> ToolParameter:
    place = f"tool {tool_name}: the parameter {parameter.name!r}"
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise TypeError(f"{place} cannot be given by name")
    required = parameter.default is parameter.empty
    plain = _without_none(hint)
    if typing.get_origin(plain) is Literal:
        return ToolParameter(parameter.name, plain, "", typing.get_args(plain), required)
    if plain not in _KINDS:
        raise TypeError(f"{place} needs a type: str, int, float, bool or Literal[…]")
    return ToolParameter(parameter.name, plain, _KINDS[plain], (), required)


def _without_none(hint: object) -> object:
    """`str | None` as `str`: what may be left out is left out, not null."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        rest = [each for each in typing.get_args(hint) if each is not types.NoneType]
        return rest[0] if len(rest) == 1 else hint
    return hint
