"""The reference pages, made from the code: HTTP API, commands, schemas, decisions.

`docs_hooks.py` puts them into the site. Each function returns Markdown.
"""

import contextlib
import functools
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast
from urllib.request import ProxyHandler, build_opener

import click

from jobwire.cli.main import COMMANDS
from jobwire.programs.schema import schema

ROOT: Final = Path(__file__).parent.parent
SYSTEMS: Final = ("jobs", "queues", "images", "predictions")
Json = Mapping[str, Any]
_START_S: Final = 90
_TAGS: Final = {
    "jobs": "Jobs",
    "queues": "Queues",
    "images": "Images",
    "predictions": "Predictions",
    "fleet": "Fleet",
    "openai": "OpenAI's API",
    "streams": "Stream tokens",
    "health": "Health",
}
_REF: Final = re.compile(r".*/")
# Only with a bot does a gateway have the routes of its webhooks. Nothing listens at its address.
_BOT: Final = {
    "JOBWIRE_PREDICTIONS_TELEGRAM_URL": "http://127.0.0.1:9",
    "REPLICATE_API_TOKEN": "token",
    "REPLICATE_MODEL": "owner/name",
    "REPLICATE_WEBHOOK_SECRET": "whsec_c2VjcmV0",
    "TELEGRAM_BOT_TOKEN": "1:token",
    "TELEGRAM_WEBHOOK_SECRET": "secret",
}


# ── HTTP ─────────────────────────────────────────────────────────────────────────────────────────


@functools.cache
def openapi() -> Json:
    """The OpenAPI document of a gateway with all systems and all their routes, which is started for
    it."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ("--port", "0", "--no-worker", "--data-dir", f"{folder}/data")
        program = subprocess.Popen(
            [sys.executable, "-m", "jobwire", "up", *arguments],
            cwd=folder,
            env={**os.environ, **_BOT},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert program.stdout is not None
            line = next((line for line in program.stdout if '"http"' in line), "")
            if not line:
                raise SystemExit("jobwire up did not start; try it by hand")
            address = json.loads(line)["http"]
            with build_opener(ProxyHandler({})).open(
                f"{address}/openapi.json", timeout=_START_S
            ) as answer:
                return cast(Json, json.loads(answer.read()))
        finally:
            program.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(timeout=30)
            program.kill()
            program.communicate()


def http_api() -> str:
    """Every route by tag, then every schema."""
    document = openapi()
    by_tag: dict[str, list[str]] = {tag: [] for tag in _TAGS}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tag = operation["tags"][0]
            by_tag.setdefault(tag, []).extend(_operation(method.upper(), path, operation))
    parts: list[str] = []
    for tag, lines in by_tag.items():
        parts += [f"## {_TAGS.get(tag, tag.capitalize())}", "", *lines]
    schemas = document["components"]["schemas"]
    parts += ["## Schemas", ""]
    for name in sorted(schemas):
        parts += [f"### {name}", "", *_members(schemas[name], _schema_link), ""]
    return "\n".join(parts)


def _operation(method: str, path: str, operation: Json) -> Iterator[str]:
    yield f"### {method} {path}"
    yield ""
    yield f"{_sentence(operation['summary'])} Scope: `{operation['x-jobwire-scope']}`."
    yield ""
    if text := operation.get("description"):
        yield from (text, "")
    if parameters := operation.get("parameters"):
        yield from ("| parameter | in | type | |", "|---|---|---|---|")
        for parameter in parameters:
            required = "required. " if parameter.get("required") else ""
            text = _cell(required + parameter.get("description", ""))
            kind = _type(parameter.get("schema", {}), _schema_link)
            yield f"| `{parameter['name']}` | {parameter['in']} | {kind} | {text} |"
        yield ""
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"Body: `{media}`, {_type(content.get('schema', {}), _schema_link)}."
        yield ""
    yield from ("| status | |", "|---|---|")
    for status, response in operation["responses"].items():
        kinds = [
            _type(content["schema"], _schema_link)
            for media, content in response.get("content", {}).items()
            if "schema" in content and "problem" not in media
        ]
        yield f"| {status} | {_cell('; '.join([response['description'], *kinds]))} |"
    yield ""


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


# ── schemas ──────────────────────────────────────────────────────────────────────────────────────


def _schema_link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _members(found: Json, link: Callable[[str], str]) -> Iterator[str]:
    """A schema: its text, and its members as a table."""
    if text := found.get("description"):
        yield from (text, "")
    members: Json = found.get("properties", {})
    if not members:
        yield f"Type: {_type(found, link)}."
        return
    required: Sequence[str] = found.get("required", ())
    yield from ("| member | type | |", "|---|---|---|")
    for name, member in members.items():
        notes = [
            "required" if name in required else "",
            str(member.get("description", "")),
            f"default `{json.dumps(member['default'])}`" if member.get("default") else "",
        ]
        text = ". ".join(note.rstrip(".") for note in notes if note)
        yield f"| `{name}` | {_type(member, link)} | {_cell(text)} |"


def _type(found: object, link: Callable[[str], str]) -> str:
    """The type of a schema in a few words."""
    if not isinstance(found, Mapping):
        return "any"
    kind = cast(Json, found)
    if "$ref" in kind:
        return link(_REF.sub("", str(kind["$ref"])))
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in kind:
            return _cell(" or ".join(_type(each, link) for each in kind[choice]))
    if "enum" in kind:
        return ", ".join(f"`{value}`" for value in kind["enum"])
    if "const" in kind:
        return f"`{kind['const']}`"
    name = kind.get("type", "any")
    if name == "array":
        return f"list of {_type(kind.get('items', {}), link)}"
    text = " or ".join(cast("list[str]", name)) if isinstance(name, list) else str(name)
    limits = [
        f"{word} {kind[key]}"
        for key, word in (
            *(("minimum", "from"), ("maximum", "to"), ("minLength", "at least")),
            ("maxLength", "at most"),
        )
        if key in kind
    ]
    return " ".join([text, *limits])


def _cell(text: str) -> str:
    """Text for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def wires() -> str:
    """The JSON Schema of each system's messages as tables."""
    parts: list[str] = []
    for system in SYSTEMS:
        found = schema(system)
        if found is None:
            continue
        command = f"jobwire schema --system {system}"
        parts += [f"## {system.capitalize()}", "", f"As JSON Schema: `{command}`.", ""]
        for name, definition in found.get("$defs", {}).items():
            parts += [f"### {system}: {name}", ""]
            parts += [*_members(definition, lambda other: f"`{other}`"), ""]
    return "\n".join(parts)


# ── commands ─────────────────────────────────────────────────────────────────────────────────────


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command and subcommand, by what is typed."""
    for name in COMMANDS:
        command = cast(click.Command, importlib.import_module(f"jobwire.cli.{name}").command)
        yield name, command
        if isinstance(command, click.Group):
            for verb, inner in command.commands.items():
                yield f"{name} {verb}", inner


def cli() -> str:
    """The help of every command."""
    parts: list[str] = []
    for name, command in commands():
        context = click.Context(command, info_name=f"jobwire {name}")
        context.max_content_width = 100
        level = "##" if " " not in name else "###"
        parts += [f"{level} jobwire {name}", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(parts)


# ── decisions ────────────────────────────────────────────────────────────────────────────────────


def decisions() -> str:
    """The list of decisions."""
    lines = ["| | decision |", "|---|---|"]
    for file in sorted((ROOT / "docs" / "decisions").glob("0*.md")):
        title = file.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        number, text = file.name[:4], re.sub(r"^\d{4}[ .:–-]*", "", title)
        lines.append(f"| {number} | [{text}]({file.name}) |")
    return "\n".join(lines)


GENERATORS: Final[Mapping[str, Callable[[], str]]] = {
    "cli": cli,
    "decisions": decisions,
    "http-api": http_api,
    "wires": wires,
}
