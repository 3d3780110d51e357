"""The pages are correct: links resolve, code parses, commands exist."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from pathlib import Path

import click
import pytest

from jobwire.cli.main import COMMANDS
from tests.docs.pages import PAGES, Block, anchors, blocks, links
from tests.support.program import ROOT

BLOCKS = [block for page in PAGES for block in blocks(page)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
COMMAND_LINES = [
    pytest.param(line, id=f"{block.page.name}: {line}")
    for block in BLOCKS
    if block.language in {"", "sh"}
    for line in block.commands()
    if re.match("jobwire [a-z]", line) and not re.search(r"\[|\.\.\.|  ", line)
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_resolves(page: Path) -> None:
    for file, anchor in links(page):
        assert file.exists(), f"{page.name} leads to {file.name}, which is not there"
        assert not anchor or anchor in anchors(file), f"{file.name} has no heading #{anchor}"


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_every_python_block_parses_and_its_jobwire_names_exist(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jobwire"):
            module = importlib.import_module(node.module or "")
            assert [name.name for name in node.names if not hasattr(module, name.name)] == []


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_every_documented_command_exists_with_its_options(line: str) -> None:
    words = shlex.split(line.partition("|")[0], comments=True)[1:]
    assert words[0] in COMMANDS
    command: click.Command = importlib.import_module(f"jobwire.cli.{words[0]}").command
    if isinstance(command, click.Group):
        command = command.commands[words[1]]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    given = {word.partition("=")[0] for word in words[1:] if re.match(r"-{1,2}[a-z]", word)}
    assert given <= known
