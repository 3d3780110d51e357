"""Programs as real processes, which tests start, watch, stop, freeze and kill.

Used by tests that must see what happens when a whole process stops or dies. Every program ends
with its test, and with the test run if that is killed.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from jobwire.spawn import ChildProcess, spawn
from tests.support.fork_server import ForkedProgram, ForkServer
from tests.support.wait import DEADLINE_S, wait_until_sync

ROOT: Final = Path(__file__).parents[2]
_JOBWIRE: Final = [sys.executable, "-m", "jobwire"]
_LOG_BYTES: Final = 8192
_NAME_LENGTH: Final = 100
fork_server: Final = ForkServer()
_programs: Final[list[Program]] = []
"""All that run, and those that the test in progress has closed."""


def forget_closed() -> None:
    """A test begins: its failure does not have the logs of programs of the test before."""
    _programs[:] = [each for each in _programs if not each.closed]


def logs() -> list[tuple[str, str]]:
    """The ends of what the programs wrote, each with a title."""
    return [(f"Log of {each.name}", each.log) for each in _programs if each.log]


def write_program(file: Path, *command: str | Path) -> None:
    """Write a program that runs `command`, with its own arguments added.

    The first line of a script could not name the interpreter: it takes no blank in a path, and no
    long one.
    """
    file.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, command))} "$@"\n')
    file.chmod(0o700)


class Program:
    """One Python program: `Program("-m", "jobwire", "worker")` or `Program.script(source)`.

    `jobwire` is a fork of a process that has loaded it, see `fork_server`; tests whose subject is
    the start pass `cold`.
    """

    def __init__(
        self,
        *arguments: str | Path,
        env: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
        command: Sequence[str | Path] | None = None,
        cold: bool = False,
    ) -> None:
        self._output = tempfile.NamedTemporaryFile(prefix="program-", suffix=".log")  # noqa: SIM115 - lives as long as we do
        variables = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        words = [*map(str, command if command is not None else [sys.executable, *arguments])]
        self.name = shlex.join(words)[:_NAME_LENGTH]
        self._log_at_end: str | None = None
        output = self._output.file.fileno()
        self._child: ChildProcess | ForkedProgram
        if words[:3] == _JOBWIRE and not cold and fork_server.can_start(variables):
            self._child = fork_server.start(words[3:], cwd, variables, output, output)
        else:
            self._child = spawn(
                words,
                env=variables,
                cwd=cwd,
                stdout=output,
                stderr=output,
                last_signal=signal.SIGKILL,
            )
        _programs.append(self)

    @classmethod
    def script(
        cls, source: str, *arguments: str | Path, env: Mapping[str, str] | None = None
    ) -> Self:
        """Run source text; `arguments` are its `sys.argv[1:]`."""
        return cls("-c", source, *arguments, env=env)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal that killed it."""
        return self._child.exit_code()

    @property
    def output(self) -> str:
        """Everything it wrote so far, to stdout and stderr together."""
        return Path(self._output.name).read_text(errors="replace")

    @property
    def lines(self) -> list[str]:
        """Its whole lines so far."""
        return self.output.rpartition("\n")[0].splitlines()

    def wait_for_line(self, part: str, *, timeout_s: float = DEADLINE_S) -> str:
        """Wait for a line that holds this text and return the line."""

        def found() -> str | None:
            ended = self.exit_code is not None
            line = next((each for each in self.lines if part in each), None)
            if line is None and ended:
                raise AssertionError(
                    f"the program ended with {self.exit_code} before it wrote {part!r}:\n"
                    f"{self.output}"
                )
            return line

        try:
            line = wait_until_sync(found, f"a line with {part!r}", timeout_s=timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\nthe program wrote:\n{self.output}") from None
        assert line is not None
        return line

    def wait(self, *, timeout_s: float = DEADLINE_S) -> int:
        """Wait for its end and return the exit code."""
        code = self._child.wait(timeout_s)
        if code is None:
            raise AssertionError(f"still running after {timeout_s:g} s, wrote:\n{self.output}")
        return code

    def freeze(self) -> None:
        """SIGSTOP: the process exists and does not run."""
        self._child.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._child.send(signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM: ask it to end."""
        self._child.send(signal.SIGTERM)

    def interrupt(self) -> None:
        """SIGINT: what Ctrl-C sends."""
        self._child.send(signal.SIGINT)

    def pause(self) -> None:
        """SIGUSR1: a worker takes no more jobs."""
        self._child.send(signal.SIGUSR1)

    def resume(self) -> None:
        """SIGUSR2: a worker takes jobs again."""
        self._child.send(signal.SIGUSR2)

    def kill(self) -> int:
        """kill -9, and wait for the end."""
        return self._child.kill()

    def close(self) -> None:
        """End it if it runs, and discard its output."""
        self._child.kill()
        if self._log_at_end is None:
            self._log_at_end = self.log
        self._output.close()

    @property
    def closed(self) -> bool:
        """Whether its output is discarded, but for the end."""
        return self._log_at_end is not None

    @property
    def log(self) -> str:
        """The end of its output, also when it is closed."""
        if self._log_at_end is not None:
            return self._log_at_end
        with Path(self._output.name).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_BYTES))
            return file.read().decode(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
