"""The domain model stays pure: it imports the standard library and itself, and does no I/O."""

import ast
import sys
from pathlib import Path

import jobwire.job

ROOM = Path(jobwire.job.__file__).parent
FORBIDDEN = {"asyncio", "socket", "ssl", "threading", "subprocess", "os", "pathlib", "io"}


def imported(source: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_the_domain_model_imports_only_itself_and_pure_standard_modules() -> None:
    for file in ROOM.glob("*.py"):
        for name in imported(file.read_text()):
            top = name.partition(".")[0]
            pure = top in sys.stdlib_module_names and top not in FORBIDDEN
            assert name.startswith("jobwire.job") or pure, f"{file.name} imports {name}"


def test_the_domain_model_uses_no_wire_vocabulary() -> None:
    words = ("valkey", "redis", "xadd", "stream", "bullmq", "hset", "lua")
    for file in ROOM.glob("*.py"):
        code = file.read_text().lower()
        assert not [word for word in words if word in code and file.name != "errors.py"], file.name
