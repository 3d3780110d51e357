"""A data directory is locked by one process, whose pid is in the error."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from jobwire.local import DataDir, DataDirHeld, DataDirUnwritable
from jobwire.spawn import spawn
from tests.support import Program

HOLD = """
import sys, time
from pathlib import Path
from jobwire.local import DataDir
DataDir.hold(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


def test_a_data_directory_is_created_private(tmp_path: Path) -> None:
    leased = DataDir.hold(tmp_path / "a" / "b")
    assert leased.path.stat().st_mode & 0o777 == 0o700
    leased.release()


def test_a_second_holder_gets_the_pid_of_the_first(tmp_path: Path) -> None:
    with Program.script(HOLD, tmp_path) as other:
        other.wait_for_line("held")
        with pytest.raises(DataDirHeld) as caught:
            DataDir.hold(tmp_path)
        assert caught.value.pid == other.pid
        assert str(caught.value) == (
            f"the data directory {tmp_path} is in use by process {other.pid}; "
            "stop it or choose another directory"
        )


def test_the_lock_is_free_after_its_holder_was_killed(tmp_path: Path) -> None:
    with Program.script(HOLD, tmp_path) as other:
        other.wait_for_line("held")
        other.kill()
        DataDir.hold(tmp_path).release()


def test_the_lock_is_held_while_a_server_uses_the_directory(tmp_path: Path) -> None:
    """A server may live a moment longer than the process that started it."""
    leased = DataDir.hold(tmp_path)
    server = spawn([sys.executable, "-c", "import time; time.sleep(600)"], keep_fds=[leased.fd])
    leased.release()
    with pytest.raises(DataDirHeld):
        DataDir.hold(tmp_path)
    server.kill()
    DataDir.hold(tmp_path).release()


def test_a_new_holder_waits_for_a_dead_ones_server(tmp_path: Path) -> None:
    source = """
import sys, time
from pathlib import Path
from jobwire.local import DataDir
from jobwire.spawn import spawn
held = DataDir.hold(Path(sys.argv[1]))
spawn([sys.executable, "-c", sys.argv[2]], keep_fds=[held.fd])
time.sleep(600)
"""
    slow = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), exit()))
print("up", flush=True)
time.sleep(600)
"""
    with Program.script(source, tmp_path, slow) as other:
        other.wait_for_line("up")
        other.kill()
        DataDir.hold(tmp_path).release()


def test_a_lock_may_be_released_twice(tmp_path: Path) -> None:
    leased = DataDir.hold(tmp_path)
    leased.release()
    leased.release()
    DataDir.hold(tmp_path).release()


def test_a_read_only_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataDirUnwritable, match=re.escape(f"{tmp_path}/file/data (Not a dir")):
        DataDir.hold(tmp_path / "file" / "data")


@pytest.mark.skipif(os.geteuid() == 0, reason="expected: root may write everywhere")
def test_a_read_only_directory_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(DataDirUnwritable, match="Permission denied"):
        DataDir.hold(tmp_path)
