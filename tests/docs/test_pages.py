"""The pages are correct: links resolve, code parses, commands exist."""

from __future__ import annotations

import ast
import importlib
import re
import shlex

import click

from jobwire.cli.main import COMMANDS
from tests.docs.pages import PAGES, anchors, blocks, links
from tests.support.program import ROOT

SOURCE = ROOT / "src" / "jobwire"
BLOCKS = [block for page in PAGES for block in blocks(page)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
COMMAND_LINES = [
    (block.page.name, line)
    for block in BLOCKS
    if block.language in {"", "sh"}
    for line in block.commands()
    if re.match("jobwire [a-z]", line) and not re.search(r"\[|\.\.\.|  ", line)
]


def test_every_link_resolves() -> None:
    broken: list[str] = []
    for page in PAGES:
        for file, anchor in links(page):
            if not file.exists():
                broken.append(f"{page.name} leads to {file.name}, which is not there")
            elif anchor and anchor not in anchors(file):
                broken.append(f"{page.name}: {file.name} has no heading #{anchor}")
    assert broken == []


def test_every_python_block_parses_and_its_jobwire_names_exist() -> None:
    assert len(PYTHON) > 30
    wrong = {str(block): found for block in PYTHON if (found := _faults(block.text))}
    assert wrong == {}


def _faults(program: str) -> list[str]:
    """Return why it does not parse, or its imports from jobwire that do not exist."""
    try:
        nodes = ast.walk(ast.parse(program))
    except SyntaxError as error:
        return [str(error)]
    return [
        f"{node.module}.{name.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jobwire")
        for name in node.names
        if not hasattr(importlib.import_module(node.module or ""), name.name)
    ]


def test_every_documented_command_exists_with_its_options() -> None:
    assert len(COMMAND_LINES) > 50
    wrong = {f"{page}: {line}": why for page, line in COMMAND_LINES if (why := _unknown(line))}
    assert wrong == {}


def _unknown(line: str) -> list[str]:
    """Return the command, subcommand or options of a line that do not exist."""
    words = shlex.split(line.partition("|")[0], comments=True)[1:]
    if words[0] not in COMMANDS:
        return words[:1]
    command: click.Command = importlib.import_module(f"jobwire.cli.{words[0]}").command
    if isinstance(command, click.Group):
        if words[1] not in command.commands:
            return words[:2]
        command = command.commands[words[1]]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    given = {word.partition("=")[0] for word in words[1:] if re.match(r"-{1,2}[a-z]", word)}
    return sorted(given - known)


def test_a_wrong_block_and_a_wrong_command_are_found() -> None:
    assert _faults("from jobwire import Nothing, App") == ["jobwire.Nothing"]
    assert _faults("def") != []
    assert _unknown("jobwire nothing") == ["nothing"]
    assert _unknown("jobwire queue nothing") == ["queue", "nothing"]
    assert _unknown("jobwire submit chat hi --nothing --follow") == ["--nothing"]


def test_every_file_of_the_walks_exists() -> None:
    """A path is below the source or `systems/`, or beside the file before it."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    walks = text.partition("## One job, file by file")[2].partition("## The Engine")[0]
    places = re.findall(r"`([\w/]+\.(?:py|lua))`", walks)
    assert len(places) > 150
    folder, missing = SOURCE, list[str]()
    for place in places:
        found = [
            file
            for file in (folder / place, SOURCE / place, SOURCE / "systems" / place)
            if file.exists()
        ]
        if not found:
            missing.append(place)
        elif found[0].parent.name not in {"include", "detectors"}:
            folder = found[0].parent
    assert missing == []
