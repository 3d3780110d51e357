"""O-12: `make` on a fresh clone, as far as it installs nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support import clause
from tests.support.program import write_program

ROOT: Final = Path(__file__).parents[2]


@clause("O-12")
def test_o12_clean_removes_what_git_ignores_and_nothing_else(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    ignored = (ROOT / ".gitignore").read_text().split()
    made = [
        tmp_path / place / name.replace("*", "").strip("/")
        for name in ignored
        if name != "*.pyc"  # those are in __pycache__
        for place in (("src/jobwire", "deploy", ".") if name == "__pycache__/" else (".",))
    ]
    for folder in made:
        (folder / "inner").mkdir(parents=True)
    kept = tmp_path / "src/jobwire/kept.py"
    kept.touch()
    shared = tmp_path / "home/jobwire-tests"
    shared.mkdir(parents=True)
    env = {**os.environ, "XDG_CACHE_HOME": str(shared.parent)}
    done = subprocess.run(
        ["make", "clean"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert [folder for folder in made if folder.exists()] == []
    assert kept.exists()
    assert shared.exists()
    assert f"kept, because all clones share it: {shared}" in done.stdout


def _old(version: str, remark: str = "") -> str:
    return f"#!/bin/sh\necho {version}\necho '{remark}'\nexit 1\n"


_TOO_OLD: Final = {
    "python3": _old("3.9"),
    "python3.13": _old("3.13", "without venv: apt install python3.13-venv"),
    "python3.12": _old("3.12", "without venv: apt install python3.12-venv"),
    "python3.11": "#!/bin/sh\nexit 127\n",
    "python3.14": "#!/bin/sh\nexit 127\n",
}


def _find_python(folder: Path, wanted: str = "") -> subprocess.CompletedProcess[str]:
    for name, text in _TOO_OLD.items():
        if not (folder / name).exists():
            (folder / name).write_text(text)
            (folder / name).chmod(0o700)
    return subprocess.run(
        [ROOT / "tools/find_python.sh", wanted],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


@clause("O-12")
def test_o12_a_newer_python_is_found_beside_an_old_one(tmp_path: Path) -> None:
    write_program(tmp_path / "python3.12", sys.executable)
    found = _find_python(tmp_path)
    assert (found.returncode, found.stdout) == (0, "python3.12\n"), found.stderr


@clause("O-12")
def test_o12_without_a_good_python_make_says_which_are_good(tmp_path: Path) -> None:
    found = _find_python(tmp_path)
    assert found.returncode == 1
    assert found.stderr == (
        "jobwire needs Python 3.11, 3.12 or 3.13; found: python3 (3.9), "
        "python3.13 (3.13 without venv: apt install python3.13-venv), "
        "python3.12 (3.12 without venv: apt install python3.12-venv). "
        "Set PYTHON=/path/to/python3.11\n"
    )
    named = _find_python(tmp_path, "python3.11")
    assert "3.12 or 3.13; found: no python3.11. Set" in named.stderr


@clause("O-12")
def test_o12_another_python_makes_the_environment_anew(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    python, stamp = tmp_path / ".venv/bin/python", tmp_path / ".venv/.dev"
    stamp.touch()

    def make(*words: str) -> str:
        command = ["make", "help", *words]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    write_program(python, sys.executable)
    make(f"PYTHON={sys.executable}")
    assert stamp.exists(), "it is the same Python"
    python.write_text("#!/bin/sh\necho 3.9.1 /usr\n")
    make()
    make(f"PYTHON={tmp_path}/missing")
    assert stamp.exists()
    assert ".venv is made anew" in make(f"PYTHON={sys.executable}")
    assert not stamp.exists()


@clause("O-12")
@pytest.mark.parametrize(("home", "no_cache"), [(".", ""), ("missing", "1")])
def test_o12_pip_keeps_nothing_in_a_home_that_cannot_be_written(
    tmp_path: Path, home: str, no_cache: str
) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    python = tmp_path / ".venv/bin/python"
    python.write_text('#!/bin/sh\necho "no cache: $PIP_NO_CACHE_DIR"\n')
    python.chmod(0o700)
    env = {**os.environ, "HOME": str(tmp_path / home), "PIP_NO_CACHE_DIR": ""}
    done = subprocess.run(
        ["make", "lock"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[0] == f"no cache: {no_cache}"
