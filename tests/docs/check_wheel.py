"""`make docs-check`: the wheel with all extras, installed and run outside of the clone.

Also: every locked package has a file for aarch64 (a Jetson, a Raspberry Pi, Graviton).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.cli.runner import clean_env
from tests.handlers.photo import images
from tests.support import Program
from tests.support.program import ROOT

_TIMEOUT_S: Final = 550
pytestmark = pytest.mark.timeout(1200)  # the largest install of all: 700 MB
# pip takes each tag literally. glibc 2.28 is that of Debian 10; the newest tag in use is 2_28.
_GLIBC: Final = ("2014", "_2_17", "_2_24", "_2_26", "_2_27", "_2_28")
_BUILT_AT_INSTALL: Final = ["pyvips"]  # pure Python, published as source only


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel, all extras and the weights."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", folder, ROOT], check=True, timeout=_TIMEOUT_S)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True, timeout=120)
    programs = folder / "venv" / "bin"
    install = [programs / "pip", "install", "--quiet", f"{wheel}[all]"]
    subprocess.run(install, check=True, timeout=_TIMEOUT_S)
    subprocess.run([programs / "jobwire", "models", "install"], check=True, timeout=_TIMEOUT_S)
    return programs


def test_up_serves_a_chat_and_a_photo(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    env = clean_env(HOME=str(tmp_path / "home"), PATH=f"{installed}:/usr/bin:/bin")
    (tmp_path / "photo.jpg").write_bytes(images.jpeg(images.photograph()))

    def jobwire(*arguments: str) -> list[str]:
        command = [installed / "jobwire", *arguments]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    command = [str(installed / "jobwire"), "up", "--port", "0"]
    with Program(command=command, cwd=tmp_path, env=env) as program:
        program.wait_for_line('"http":', timeout_s=60)
        *_, job = map(json.loads, jobwire("submit", "chat", "hello", "--follow"))
        assert job["result"]["text"]
        *_, image = map(json.loads, jobwire("images", "put", "photo.jpg", "--follow"))
        assert image["url"]
        program.terminate()
        assert program.wait() == 0


def test_every_locked_package_has_a_file_for_aarch64(tmp_path: Path) -> None:
    platforms = [part for tag in _GLIBC for part in ("--platform", f"manylinux{tag}_aarch64")]
    for python in ("3.11", "3.12", "3.13"):
        folder = tmp_path / python
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        which = ["--python-version", python, *platforms, "--requirement", ROOT / "locked/all.txt"]
        subprocess.run([*pip, *which, "--dest", folder], check=True, timeout=_TIMEOUT_S)
        names = [file.name for file in folder.iterdir() if file.suffix != ".whl"]
        assert [name.partition("-")[0] for name in names] == _BUILT_AT_INSTALL
