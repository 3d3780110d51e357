"""Child processes end with their parent, however it ends, and not earlier."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from jobwire.spawn import ChildProcess, Guard, spawn, usable_memory
from tests.support import Program, clause, wait_until_sync

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""
PARENT = """
import sys, time
from jobwire.spawn import spawn
child = spawn(["sleep", "600"], guard=sys.argv[1])
print("child", child.pid, flush=True)
time.sleep(600)
"""

both_guards = pytest.mark.parametrize(
    "guard",
    [
        pytest.param(
            "kernel",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="expected: Linux only"),
        ),
        "pipe",
    ],
)


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def started(tmp_path: Path, source: str, guard: Guard) -> ChildProcess:
    """A child that has finished its set-up."""
    output = tmp_path / "output"
    with output.open("wb") as out:
        child = spawn([sys.executable, "-c", source], stdout=out, guard=guard)
    wait_until_sync(lambda: "up" in output.read_text(), "the child to be started")
    return child


@both_guards
def test_a_child_dies_when_its_parent_is_killed(guard: Guard) -> None:
    with Program.script(PARENT, guard) as parent:
        pid = int(parent.wait_for_line("child").split()[1])
        assert is_running(pid)
        parent.kill()
        wait_until_sync(lambda: not is_running(pid), "the child to die with its parent")


@both_guards
def test_a_child_dies_when_its_parent_just_ends(guard: Guard) -> None:
    with Program.script(PARENT.replace("time.sleep(600)", ""), guard) as parent:
        pid = int(parent.wait_for_line("child").split()[1])
        parent.wait()
        wait_until_sync(lambda: not is_running(pid), "the child to die with its parent")


@both_guards
def test_a_child_outlives_the_thread_that_started_it(tmp_path: Path, guard: Guard) -> None:
    """The kernel ties a child to a thread, so a child of a short-lived thread would die early."""
    children: list[ChildProcess] = []
    thread = threading.Thread(target=lambda: children.append(started(tmp_path, SLEEP[2], guard)))
    thread.start()
    thread.join(30)
    (child,) = children
    assert child.wait(0.3) is None
    child.kill()


@both_guards
def test_stop_returns_the_exit_code(tmp_path: Path, guard: Guard) -> None:
    child = started(tmp_path, SLEEP[2], guard)
    assert child.exit_code() is None
    assert child.stop() == -signal.SIGTERM
    assert child.exit_code() == -signal.SIGTERM
    assert child.stop() == -signal.SIGTERM, "stop may be called twice"


@both_guards
def test_stop_kills_a_child_that_ignores_sigterm(tmp_path: Path, guard: Guard) -> None:
    child = started(tmp_path, STUBBORN, guard)
    assert child.stop(grace_s=0.1) == -signal.SIGKILL


def test_stop_reaches_a_suspended_child(tmp_path: Path) -> None:
    child = started(tmp_path, SLEEP[2], "pipe")
    child.send(signal.SIGSTOP)
    wait_until_sync(
        lambda: psutil.Process(child.pid).status() == psutil.STATUS_STOPPED, "it to freeze"
    )
    assert child.stop() == -signal.SIGTERM


@both_guards
def test_no_process_remains_when_a_child_ends(guard: Guard) -> None:
    before = {each.pid for each in psutil.Process().children()}
    child = spawn([sys.executable, "-c", "raise SystemExit(7)"], guard=guard)
    assert child.wait(30) == 7
    assert {each.pid for each in psutil.Process().children()} <= before


@both_guards
def test_ctrl_c_reaches_the_parent_and_not_the_child(tmp_path: Path, guard: Guard) -> None:
    child = started(tmp_path, SLEEP[2], guard)
    assert os.getsid(child.pid) != os.getsid(0)
    child.kill()


@both_guards
def test_only_the_named_files_are_inherited(tmp_path: Path, guard: Guard) -> None:
    read, write = os.pipe()
    source = f"import os; os.write({write}, b'x'); os.close({write})"
    child = spawn([sys.executable, "-c", source], keep_fds=[write], guard=guard)
    os.close(write)
    assert child.wait(30) == 0
    assert os.read(read, 10) == b"x"
    assert os.read(read, 10) == b"", "another process holds the pipe open"
    os.close(read)


def test_a_missing_program_is_an_error_before_anything_starts() -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program is not installed"):
        spawn(["no-such-program"])


def test_a_child_whose_parent_died_meanwhile_never_starts() -> None:
    """Both launchers look for their parent before they become the program."""
    module = sys.modules["jobwire.spawn"]
    orphan = [sys.executable, "-ISc", module._KERNEL_LAUNCHER, "1", "15", "echo", "started"]
    result = subprocess.run(orphan, capture_output=True, timeout=60, check=False)
    assert (result.returncode, result.stdout) == (1, b"")

    read, write = os.pipe()
    os.close(write)
    orphan = [sys.executable, "-ISc", module._PIPE_LAUNCHER, str(read), "echo", "started"]
    result = subprocess.run(orphan, pass_fds=[read], capture_output=True, timeout=60, check=False)
    os.close(read)
    assert (result.returncode, result.stdout) == (1, b"")


def test_a_forked_process_can_start_children_of_its_own() -> None:
    source = """
import os, sys
from jobwire.spawn import spawn
assert spawn([sys.executable, "-c", ""]).wait(30) == 0
if os.fork() == 0:
    os._exit(spawn([sys.executable, "-c", "raise SystemExit(5)"]).wait(30))
print("child exited with", os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""
    with Program.script(source) as program:
        assert program.wait_for_line("child exited") == "child exited with 5"
        assert program.wait() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="expected: Linux only")
def test_cores_that_a_process_may_not_use_do_not_count() -> None:
    code = (
        "import os; from jobwire.spawn import usable_cores\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print(usable_cores())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "1\n"


@clause("J-57")
@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("0::/service", "service/memory.max"),
        ("0::/slice/service", "slice/memory.max"),
        ("0::/", "memory.max"),
        ("4:memory:/service", "memory/service/memory.limit_in_bytes"),
        ("4:cpu,memory:/service", "memory/service/memory.limit_in_bytes"),
        # A container: the kernel tells the path that its group has outside.
        ("4:memory:/docker/f0ebe78d", "memory/memory.limit_in_bytes"),
    ],
)
def test_j57_the_limit_of_each_control_group_counts(tmp_path: Path, line: str, file: str) -> None:
    groups, limit = tmp_path / "groups", tmp_path / "mounted" / file
    groups.write_text(f"9:name=systemd:/other\n{line}\n")
    limit.parent.mkdir(parents=True)
    limit.write_text(f"{400 << 20}\n")
    assert usable_memory(groups, tmp_path / "mounted") == 400 << 20
    unlimited = "max" if file.endswith("max") else str((1 << 63) - 4096)
    limit.write_text(f"{unlimited}\n")
    whole = usable_memory(groups, tmp_path / "mounted")
    assert whole > 400 << 20
    assert usable_memory(tmp_path / "missing", tmp_path) == whole
