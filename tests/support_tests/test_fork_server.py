"""A forked program cannot tell that it is no new process."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
from pathlib import Path
from typing import Any

import psutil

from tests.cli.runner import clean_env, is_gone
from tests.support import Program, wait_until_sync
from tests.support.fork_server import ForkedProgram

# Loaded by `jobwire worker` as its app, which then fails: what the program finds around itself.
PROBE = """
import json, locale, os, random, signal, socket, sys, threading, time

def file(number):
    try:
        path = os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return None
    return "output" if "program-" in path else path.partition(":")[0]

main = sys.modules["__main__"]
print(json.dumps({
    "session": os.getsid(0) == os.getpgid(0) == os.getpid(),
    "signals": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
    "wakeup": signal.set_wakeup_fd(-1),
    "blocked": [*map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))],
    "arguments": sys.argv[1:],
    "cwd": os.getcwd(),
    "path": sys.path,
    "flags": str(sys.flags),
    "env": dict(os.environ),
    "zone": time.tzname,
    "locale": locale.getlocale(),
    "umask": os.umask(0o22),
    "nice": os.nice(0),
    "files": [file(number) for number in range(40)],
    "stdout": [sys.stdout.encoding, sys.stdout.write_through, sys.stderr.write_through],
    "threads": len(os.listdir("/proc/self/task")),
    "main": [main.__name__, main.__spec__.name],
    "argv": os.path.basename(sys.argv[0]),
}), flush=True)
print("drawn", random.random(), flush=True)
"""


def _probe(folder: Path, *, cold: bool) -> tuple[dict[str, Any], str]:
    """What a worker finds around itself, and its first random number."""
    path = os.pathsep.join((str(folder / "first"), str(folder / "second")))
    env = {**clean_env(), "TZ": "Asia/Tokyo", "WORD": "there", "PYTHONPATH": path}
    words = ("-m", "jobwire", "worker", "probe", "--slots", "3")
    with Program(*words, env=env, cwd=folder, cold=cold) as program:
        facts = json.loads(program.wait_for_line('{"session"'))
        drawn = program.wait_for_line("drawn")
        program.wait()
        facts["end"] = [program.exit_code, program.lines[-1]]
        return facts, drawn


def test_a_fork_finds_what_a_new_process_finds(tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text(PROBE)
    random.seed(1)
    (first, one), (second, two) = (_probe(tmp_path, cold=False) for _ in range(2))
    fresh, _ = _probe(tmp_path, cold=True)
    assert first == second == fresh
    assert one != two


def test_signals_reach_the_program_and_its_exit_code_the_test(tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text("import time; print('up', flush=True); time.sleep(600)")
    for signum, code in ((signal.SIGTERM, -signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)):
        with Program("-m", "jobwire", "worker", "probe", cwd=tmp_path) as program:
            program.wait_for_line("up")
            assert program.exit_code is None
            program.freeze()
            process = psutil.Process(program.pid)
            wait_until_sync(lambda: process.status() == psutil.STATUS_STOPPED, "it to freeze")  # noqa: B023 - called here
            program.thaw()
            process.send_signal(signum)
            assert program.wait() == code
            assert is_gone(program.pid)


def test_a_fork_ends_when_the_test_run_is_killed(tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text("import time; print('up', flush=True); time.sleep(600)")
    source = f"""
import time
from pathlib import Path
from tests.support import Program
program = Program("-m", "jobwire", "worker", "probe", cwd=Path({str(tmp_path)!r}))
program.wait_for_line("up")
print("inner", program.pid, flush=True)
time.sleep(600)
"""
    with Program.script(source) as outer:
        inner = int(outer.wait_for_line("inner").split()[1])
        assert not is_gone(inner)
        outer.kill()
        wait_until_sync(lambda: is_gone(inner), "the inner program to die")


def test_a_pid_and_an_exit_code_that_arrive_together_are_two_answers() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(b"12\n" + b"3 0.250\n")
    program = ForkedProgram(ours)
    assert (program.pid, program.wait(), program.exit_code()) == (12, 3, 3)
