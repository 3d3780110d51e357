"""The payload argument of `jobwire submit`: JSON, text, a file or stdin."""

import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from jobwire.cli import sanitize
from jobwire.cli.exits import CliExit, Exit
from jobwire.json_depth import bounded
from jobwire.text import did_you_mean

if TYPE_CHECKING:
    from jobwire.api.fleet import TaskInfo

_decode_members: Final = bounded(msgspec.json.Decoder(dict[str, msgspec.Raw]).decode)
# The payload member that plain text fills, for the six built-in tasks.
_TEXT_MEMBERS: Final = {
    "chat": "prompt",
    "plan": "goal",
    "code": "prompt",
    "tool": "prompt",
    "rag": "question",
    "embed": "input",
}


def read(argument: str | None) -> str:
    """Return the text: the argument itself, the content of `@file`, or stdin for `-`."""
    if argument is None:
        return "{}"
    try:
        if argument == "-":
            return sys.stdin.buffer.read().decode()
        if argument.startswith("@"):
            return Path(argument[1:]).read_bytes().decode()
    except OSError as error:
        raise CliExit(f"{argument[1:]}: {error.strerror}", Exit.USAGE) from None
    except UnicodeDecodeError:
        raise CliExit(f"{argument}: is not UTF-8 text", Exit.USAGE) from None
    return argument


def as_object(text: str) -> msgspec.Raw | None:
    """Return the payload byte for byte if the text is a JSON object; None for other text."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        _decode_members(text)
    except msgspec.ValidationError:
        raise CliExit('a payload is a JSON object: {"name": …}', Exit.USAGE) from None
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise CliExit(f"the payload is not valid JSON: {error}", Exit.USAGE) from None
    return msgspec.Raw(text.encode())


def member(task: str) -> str | None:
    """Return the payload member for text, if the task is built in."""
    return _TEXT_MEMBERS.get(task)


class _Property(msgspec.Struct):
    type: object = None


class _Schema(msgspec.Struct):
    """The part of a JSON Schema that is used."""

    required: list[str] = []
    properties: dict[str, _Property] = {}
    ref: str = msgspec.field(name="$ref", default="")
    defs: "dict[str, _Schema]" = msgspec.field(name="$defs", default_factory=dict)


def no_such_task(task: str, names: Collection[str]) -> CliExit:
    """Return the error of an unknown task, with a near name or all names."""
    hint = did_you_mean(task, names) or f"; known tasks: {', '.join(sorted(names))}"
    line = f"no worker has the task {sanitize.line(task)!r}{sanitize.line(hint)} (unknown_task)"
    return CliExit(line, Exit.REFUSED)


def member_by_schema(task: str, tasks: "Mapping[str, TaskInfo]") -> str:
    """Return the payload member for text: the only required member, if it is a string."""
    if task not in tasks:
        raise no_such_task(task, tasks)
    known = tasks[task]
    schema = _schema(known)
    if len(schema.required) == 1:
        (name,) = schema.required
        if name in schema.properties and schema.properties[name].type == "string":
            return name
    shown = sanitize.json_text(msgspec.json.encode(known.example or {"name": "value"}))
    raise CliExit(
        f"the task {sanitize.line(task)!r} takes no plain text; give JSON: '{shown}'", Exit.USAGE
    )


def _schema(known: "TaskInfo") -> _Schema:
    try:
        schema = msgspec.convert(known.schema or {}, _Schema)
    except msgspec.ValidationError:
        return _Schema()
    # A schema that is only a reference stands for its definition.
    return schema.defs.get(schema.ref.rpartition("/")[2], schema)
