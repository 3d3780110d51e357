"""What a person types as a payload: JSON, text, a file or a pipe."""

import sys
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from jobwire.cli import sanitize
from jobwire.cli.exits import CliExit, Exit

if TYPE_CHECKING:
    from jobwire.client.messages import TaskInfo

# Where plain text goes in the payloads of the tasks that everybody has.
_MEMBERS: Final = {
    "chat": "prompt",
    "plan": "goal",
    "code": "prompt",
    "tool": "prompt",
    "rag": "question",
    "embed": "input",
}


def read(given: str | None) -> str:
    """The text: as typed, `@file`, or `-` for what is piped in."""
    if given is None:
        return "{}"
    try:
        if given == "-":
            return sys.stdin.buffer.read().decode()
        if given.startswith("@"):
            return Path(given[1:]).read_bytes().decode()
    except OSError as error:
        raise CliExit(f"{given[1:]}: {error.strerror}", Exit.USAGE) from None
    except UnicodeDecodeError:
        raise CliExit(f"{given}: is no UTF-8 text", Exit.USAGE) from None
    return given


def as_object(text: str) -> msgspec.Raw | None:
    """The payload, byte for byte, if the text is a JSON object; None for other text."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        raise CliExit('a payload is a JSON object: {"name": …}', Exit.USAGE) from None
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise CliExit(f"the payload is no valid JSON: {error}", Exit.USAGE) from None
    return msgspec.Raw(text.encode())


def member(task: str) -> str | None:
    """Where text goes in this task's payload, if everybody knows."""
    return _MEMBERS.get(task)


class _Property(msgspec.Struct):
    type: object = None


class _Schema(msgspec.Struct):
    """What we understand of a JSON Schema."""

    required: list[str] = []
    properties: dict[str, _Property] = {}
    ref: str = msgspec.field(name="$ref", default="")
    defs: "dict[str, _Schema]" = msgspec.field(name="$defs", default_factory=dict)


def no_such_task(task: str, names: Collection[str]) -> CliExit:
    """Which tasks there are, the likely one first."""
    near = get_close_matches(task, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(names))}"
    line = f"no worker has the task {sanitize.line(task)!r}; {sanitize.line(hint)} (unknown_task)"
    return CliExit(line, Exit.REFUSED)


def member_by_schema(task: str, tasks: "Mapping[str, TaskInfo]") -> str:
    """The same for any task: the one text that its payload must have."""
    if task not in tasks:
        raise no_such_task(task, tasks)
    known = tasks[task]
    schema = _schema(known)
    if len(schema.required) == 1:
        (name,) = schema.required
        if name in schema.properties and schema.properties[name].type == "string":
            return name
    shown = sanitize.json_text(msgspec.json.encode(known.example or {"name": "value"}))
    told = sanitize.line(task)
    raise CliExit(
        f"where text goes in a payload of {told!r} is unknown; give '{shown}'", Exit.USAGE
    )


def _schema(known: "TaskInfo") -> _Schema:
    try:
        schema = msgspec.convert(known.schema or {}, _Schema)
    except msgspec.ValidationError:
        return _Schema()
    # One that only points to a definition of its own is that definition.
    return schema.defs.get(schema.ref.rpartition("/")[2], schema)
