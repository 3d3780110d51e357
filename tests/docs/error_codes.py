"""Every error code that the product can send or store, read from its source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Final

from jobwire.systems.images.contract import ImageErrorCode
from jobwire.systems.jobs.contract import Code
from jobwire.systems.predictions.contract import TaskErrorCode
from tests.support.program import ROOT

_SOURCE: Final = ROOT / "src" / "jobwire"
# Calls whose first argument is an error code; in every call, an argument `code` is one.
_CALLS: Final = {
    *("ProblemKind", "JobError", "Fail", "PermanentFailure", "RetryRequested"),
    *("ModelError", "ModelRefused", "UploadFault"),
}
_CODE: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_LUA: Final = re.compile(r"problem\('(\w+)'")


def error_codes() -> set[str]:
    """All codes."""
    found = {str(code) for codes in (ImageErrorCode, TaskErrorCode, Code) for code in codes}
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in _SOURCE.rglob("*.py")]
    constants = {name: code for tree in trees for name, code in _constants(tree)}
    for tree in trees:
        found.update(_in_python(tree, constants))
    for file in _SOURCE.rglob("*.lua"):
        found.update(_LUA.findall(file.read_text(encoding="utf-8")))
    return found


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """`BAD_JOB: Final = "bad_job"` at the top level of a module."""
    for line in tree.body:
        if isinstance(line, ast.AnnAssign) and line.value:
            yield from ((_name(line.target), code) for code in _codes([line.value], {}))


def _in_python(tree: ast.Module, constants: Mapping[str, str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if _name(node.func) in _CALLS:
                yield from _codes(node.args[:1], constants)
            named = [word.value for word in node.keywords if word.arg == "code"]
            yield from _codes(named, constants)
        elif isinstance(node, ast.ClassDef):
            for line in node.body:
                if isinstance(line, ast.Assign | ast.AnnAssign) and line.value:
                    targets = line.targets if isinstance(line, ast.Assign) else [line.target]
                    if any(_name(target) == "code" for target in targets):
                        yield from _codes([line.value], constants)


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _codes(nodes: list[ast.expr], constants: Mapping[str, str]) -> Iterator[str]:
    for node in nodes:
        value = node.value if isinstance(node, ast.Constant) else constants.get(_name(node))
        if isinstance(value, str) and _CODE.fullmatch(value):
            yield value
