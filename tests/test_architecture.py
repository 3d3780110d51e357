"""Import rules, module docstrings and the contents of the wheel."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

import pytest

from tests.support import clause
from tests.support.import_rules import violations

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ROOT / "src" / "jobwire"


def test_imports_follow_the_rules() -> None:
    assert violations(SOURCE) == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("api/jobs.py", "from jobwire.job.errors import ContractError"),
        ("systems/jobs/contract.py", "from jobwire.gateway.problems import Problem"),
        ("job/states.py", "import jobwire.valkey"),
        ("job/states.py", "from ..valkey import Connection"),
        ("valkey/resp_socket.py", "from jobwire.job import states"),
        ("valkey/resp_socket.py", "def late():\n    from jobwire import settings"),
        ("objects/store.py", "from jobwire.valkey import Connection"),
        ("worker/queue_loop.py", "from jobwire.systems.jobs.engine import StreamsEngine"),
        ("gateway/app.py", "from jobwire.systems import jobs"),
        ("handlers/llm/chat.py", "from jobwire.worker.app import App"),
        ("handlers/llm/chat.py", "from jobwire.local import LocalValkey"),
        ("spawn.py", "from jobwire.local.errors import LocalError"),
        ("systems/jobs/queue.py", "from jobwire.gateway.sse import write"),
        ("systems/jobs/http.py", "from jobwire.systems.queues.contract import KEYS"),
        ("systems/jobs/http.py", "from jobwire.worker.app import App"),
        ("settings.py", "from jobwire.worker.app import App"),
        ("client.py", "from jobwire.gateway.app import build"),
        ("cli/up.py", "from jobwire.systems.jobs.queue import Queue"),
        ("systems/jobs/queue.py", "from jobwire.systems.jobs.http import feature"),
        ("systems/jobs/http/jobs.py", "from jobwire.systems.jobs.system import SYSTEM"),
        ("systems/jobs/system.py", "from jobwire.programs.gateway import serve"),
        ("systems/system.py", "from jobwire.systems.jobs.contract import KEYS"),
        ("attic/box.py", "import json"),
    ],
)
def test_a_forbidden_import_is_found(tmp_path: Path, module: str, line: str) -> None:
    assert len(violations(_package(tmp_path, module, line))) == 1


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("job/states.py", "from jobwire.job.ids import now"),
        ("systems/jobs/queue.py", "from jobwire.valkey import Connection"),
        ("systems/jobs/queue.py", "from .contract import KEYS"),
        ("systems/queues/new_jobs.py", "from jobwire.api.queue_jobs import NewJobOptions"),
        ("gateway/route.py", "from jobwire.api.operation import Operation"),
        ("systems/jobs/http.py", "from jobwire.api.jobs import LIST"),
        ("systems/jobs/http.py", "from jobwire.gateway.sse import write"),
        ("systems/jobs/http.py", "from jobwire.systems.jobs.queue import Queue"),
        ("systems/jobs/feature.py", "from jobwire.systems.jobs.http import feature"),
        ("systems/jobs/system.py", "from jobwire.systems.system import System"),
        ("handlers/llm/chat.py", "from jobwire.spawn import spawn"),
        ("settings.py", "from jobwire.worker.settings import WorkerSettings"),
        ("programs/up.py", "from jobwire.systems.jobs.engine import StreamsEngine"),
        ("cli/up.py", "from jobwire.programs import build"),
        ("cli/up.py", "from jobwire import __version__"),
        ("__init__.py", "def late():\n    from jobwire.client import Client"),
    ],
)
def test_an_allowed_import_passes(tmp_path: Path, module: str, line: str) -> None:
    assert violations(_package(tmp_path, module, line)) == []


@clause("O-6")
def test_o06_one_module_builds_validators_of_json_schema() -> None:
    """A schema or a value may come from a caller: `json_schema/` bounds what it can cost and fetch.
    A use elsewhere would be the library with its defaults, which fetch and backtrack."""
    texts = {str(file.relative_to(SOURCE)): file.read_text() for file in _source_files()}
    imported = re.compile(r"^\s*(import|from) (jsonschema|fastjsonschema)", re.MULTILINE)
    users = [name for name, text in texts.items() if imported.search(text)]
    assert [name for name in users if not name.startswith("json_schema/")] == []
    assert [name for name in users if "validator_for(" in texts[name]] == [
        "json_schema/first_fault.py"
    ]


def test_every_module_has_a_docstring() -> None:
    undocumented = [
        str(file) for file in _source_files() if not ast.get_docstring(ast.parse(file.read_text()))
    ]
    assert undocumented == []


def test_the_wheel_contains_all_package_files(tmp_path: Path) -> None:
    """Files other than Python (types marker, Lua scripts) are easily left out of a wheel."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=100,
    )
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    expected = {
        str(file.relative_to(SOURCE.parent))
        for file in SOURCE.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert "jobwire/py.typed" in packed
    assert expected - packed == set()


def _source_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def _package(folder: Path, module: str, line: str) -> Path:
    """A small package with one import, and the modules that such imports name."""
    package = folder / "jobwire"
    for name in ("settings.py", "valkey/__init__.py", "systems/jobs/__init__.py", "job/states.py"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).touch()
    file = package / module
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(line)
    return package
