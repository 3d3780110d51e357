"""The demo's cog: what it writes outside of the demo's folder."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobwire.local import StartFailed
from jobwire.systems.predictions.demo.cog import open_predictions
from tests.support import clause
from tests.support.machine import needs_root
from tests.support.other_user import OTHER_UID


@pytest.fixture
def folder() -> Iterator[Path]:
    """Below /tmp, which other users can enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        Path(home).chmod(0o755)
        yield Path(home) / "coglet" / "predictions"


@clause("P-27")
@pytest.mark.parametrize("made_by", ["us", "an earlier cog"])
def test_p27_cogs_folder_is_open_to_all_users(folder: Path, made_by: str) -> None:
    if made_by == "an earlier cog":
        folder.parent.mkdir(mode=0o700)
        folder.mkdir(mode=0o700)
    open_predictions(folder)
    assert {stat.S_IMODE(each.stat().st_mode) for each in (folder, folder.parent)} == {0o1777}


@clause("P-27")
def test_p27_cogs_folder_is_no_link_to_a_folder_of_the_user(folder: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    folder.parent.symlink_to(tmp_path)
    with pytest.raises(StartFailed, match="cog keeps the files of its predictions in"):
        open_predictions(folder)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


@clause("P-27")
@needs_root
@pytest.mark.parametrize("opened", [True, False])
def test_p27_a_second_user_runs_the_demo_or_learns_why_not(folder: Path, opened: bool) -> None:
    if opened:
        open_predictions(folder)
    else:
        folder.mkdir(parents=True)
        folder.chmod(0o755)
    # It becomes that user late: the interpreter may lie where that user cannot read.
    program = (
        "import os, pathlib, sys\n"
        "from jobwire.systems.predictions.demo.cog import open_predictions\n"
        f"os.setgroups([]); os.setgid({OTHER_UID}); os.setuid({OTHER_UID})\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "open_predictions(folder)\n"
        "(folder / 'one' / 'outputs').mkdir(parents=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, folder],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if opened:
        assert done.returncode == 0, done.stderr
    else:
        assert f"{folder}: this user may not write there" in done.stderr
        assert f"chmod 1777 {folder.parent} {folder}" in done.stderr
