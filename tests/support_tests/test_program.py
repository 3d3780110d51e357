"""Programs are started, frozen and killed for real."""

from __future__ import annotations

import signal

import psutil
import pytest

from tests.support import Program, wait_until_sync
from tests.support.fixtures import StartProgram

COUNT = """
import itertools, os, sys, time
print("hello", *sys.argv[1:], os.environ.get("WORD"), flush=True)
for n in itertools.count():
    print("n", n, flush=True)
    time.sleep(0.01)
"""


def test_stdin_and_stdout_are_connected(run_program: StartProgram) -> None:
    program = run_program("-c", COUNT, "you", WORD="there")
    assert program.wait_for_line("hello") == "hello you there"
    assert program.exit_code is None


def test_a_frozen_program_does_nothing_until_it_is_thawed() -> None:
    with Program.script(COUNT) as program:
        program.wait_for_line("n 0")
        program.freeze()
        process = psutil.Process(program.pid)
        wait_until_sync(lambda: process.status() == psutil.STATUS_STOPPED, "it to freeze")
        lines = len(program.lines)
        program.thaw()
        wait_until_sync(lambda: len(program.lines) > lines, "it to continue")


@pytest.mark.parametrize(
    ("name", "number"),
    [("terminate", signal.SIGTERM), ("interrupt", signal.SIGINT), ("kill", signal.SIGKILL)],
)
def test_signals_and_exit_status(name: str, number: signal.Signals) -> None:
    with Program.script(COUNT) as program:
        program.wait_for_line("n 0")
        getattr(program, name)()
        assert program.wait() == -number


def test_a_program_that_ends_too_early_is_shown_with_its_output() -> None:
    with (
        Program.script("print('oh no'); raise SystemExit(3)") as program,
        pytest.raises(AssertionError, match=r"ended with 3 before it wrote 'ready':\noh no"),
    ):
        program.wait_for_line("ready")


def test_a_program_ends_with_its_test(run_program: StartProgram) -> None:
    with Program.script(COUNT) as program:
        program.wait_for_line("n 0")
    assert not psutil.pid_exists(program.pid)


def test_a_program_ends_when_the_test_run_is_killed() -> None:
    source = """
import time
from tests.support import Program
program = Program.script("import time; time.sleep(600)")
print("inner", program.pid, flush=True)
time.sleep(600)
"""
    with Program.script(source) as outer:
        inner = int(outer.wait_for_line("inner").split()[1])
        outer.kill()

        def gone() -> bool:
            try:
                return psutil.Process(inner).status() == psutil.STATUS_ZOMBIE
            except psutil.NoSuchProcess:
                return True

        wait_until_sync(gone, "the inner program to die")
