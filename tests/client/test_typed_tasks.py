"""J-54: typed tasks, for the type checker and at run time."""

from __future__ import annotations

import shutil
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

FILE = Path(__file__).parent / "typed_tasks.py"
WRONG = """
from tests.client.typed_tasks import Resize, resize
from jobwire import Client

def wrong(client: Client) -> None:
    client.run(resize, {"url": "a"})
    client.submit(resize)
    text: str = client.run(resize, Resize("a", 1))
"""


def checked(*files: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "basedpyright"
    if not program.exists() and shutil.which("basedpyright") is None:
        pytest.skip("basedpyright is not installed")
    command = [str(program), "--pythonpath", sys.executable, *map(str, files)]
    root = FILE.parents[2]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=root, timeout=240, check=False
    )


@clause("J-54")
def test_j54_the_type_checker_knows_payload_and_result_of_a_task(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    found = checked(FILE, wrong)
    faults = [line for line in found.stdout.splitlines() if ": error:" in line.replace(" - ", ": ")]
    assert not [line for line in faults if "typed_tasks.py" in line], found.stdout
    lines = {int(line.split(":")[1]) for line in faults if "wrong.py" in line}
    assert {6, 7, 8} <= lines, found.stdout


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
