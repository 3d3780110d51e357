"""J-54: typed tasks, for the type checker and at run time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from jobwire import Task
from jobwire.client import BadAnswer
from jobwire.client.calls import task_name, typed_result
from jobwire.job.messages import Json
from jobwire.worker import App
from tests.client.typed_tasks import Size, app, count, resize
from tests.support import clause

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).parent / "typed_tasks.py"
WRONG = """
from tests.client.typed_tasks import Resize, measure, resize, untyped
from jobwire import Client

def wrong(client: Client) -> None:
    client.run(resize, {"url": "a"})
    client.submit(resize)
    text: str = client.run(resize, Resize("a", 1))
    client.run(measure, 3)
    client.run(untyped, Resize("a", 1))
"""
CHECKERS = {
    "basedpyright": ["--pythonpath", sys.executable],
    "mypy": ["--strict", "--cache-dir=/dev/null", "--python-executable", sys.executable],
}


def faults(checker: str, *paths: Path) -> list[str]:
    """The errors that a type checker finds, one line each."""
    program = Path(sys.executable).parent / checker
    if not program.exists():
        pytest.skip(f"{checker} is not installed")
    command = [str(program), *CHECKERS[checker], *map(str, paths)]
    found = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=240, check=False
    )
    assert found.returncode in (0, 1), found.stdout + found.stderr
    return [line for line in found.stdout.splitlines() if re.search(r":\d+(:\d+ -|:) error:", line)]


@clause("J-54")
@pytest.mark.parametrize("checker", CHECKERS)
def test_j54_type_checkers_know_payload_and_result_of_a_task(checker: str, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    # `make check` checks the examples with basedpyright.
    examples = [ROOT / "examples"] if checker == "mypy" else []
    found = faults(checker, FILE, *examples, wrong)
    assert [line for line in found if "wrong.py" not in line] == []
    assert {int(line.split("wrong.py:")[1].split(":")[0]) for line in found} == {6, 7, 8, 9, 10}


@clause("J-54")
def test_j54_a_result_is_converted_to_the_tasks_type() -> None:
    plain: dict[str, Json] = {"width": 4, "height": 2}
    assert typed_result(resize, plain) == Size(4, 2)
    assert typed_result(Task("resize", dict, Size), plain) == Size(4, 2)
    assert typed_result(count, 3) == 3
    assert typed_result("resize", plain) is plain
    with pytest.raises(BadAnswer, match="'resize' is not of its type"):
        typed_result(resize, {"width": "wide", "height": 2})


@clause("J-54")
def test_j54_a_function_of_several_tasks_is_submitted_by_name() -> None:
    other = App()

    def both(payload: msgspec.Raw) -> None:
        del payload

    other.handler("one")(both)
    assert task_name(both) == "one"  # pyright: ignore[reportArgumentType] - the plain function
    other.handler("two")(both)
    with pytest.raises(TypeError, match="registered for exactly one task"):
        task_name(both)  # pyright: ignore[reportArgumentType] - the plain function
    assert app.handlers["resize"].function is resize
