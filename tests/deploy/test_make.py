"""O-12: `make` on a fresh clone, as far as it installs nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.support import clause

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
