"""One server for all parallel pytest processes: the first user starts it, and stops it as the last.

Used for servers that are slow to start. Each user holds a shared lock on a file, which a crash
releases. The process that started the server stops it when no other process holds the lock. If
that process dies, the server dies with it and the next user starts another one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import IO, Final

import pytest

Facts = Mapping[str, str]
# How long the starter waits for the others; the tests of a worker never take this long.
_START_TIMEOUT_S: Final = 300.0
_started: Final = contextlib.ExitStack()


@contextlib.contextmanager
def shared_server(
    folder: Path,
    name: str,
    start: Callable[[Path], contextlib.AbstractContextManager[Facts]],
    answers: Callable[[Facts], bool],
) -> Generator[Facts]:
    """Use the server called `name`; `start` starts it in a folder and returns its address."""
    home = folder / name
    home.mkdir(exist_ok=True)
    noted = home / "facts.json"
    with contextlib.ExitStack() as ours:
        users = ours.enter_context((home / "users.lock").open("w"))
        facts: Facts | None = None
        with _exclusively(home / "start.lock"):
            fcntl.flock(users, fcntl.LOCK_SH)
            if noted.exists():
                facts = json.loads(noted.read_text())
            if facts is None or not answers(facts):
                facts = ours.enter_context(start(home))
                noted.write_text(json.dumps(facts))
                ours.callback(_until_alone, home, users, noted)
                _started.callback(ours.pop_all().close)
        yield facts


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Wait for the other users after the last test: the wait counts to no test's time limit."""
    _started.close()


def _until_alone(home: Path, users: IO[str], noted: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        with _exclusively(home / "start.lock"):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                noted.unlink()
                return
            if time.monotonic() > deadline:
                return
        time.sleep(0.05)


@contextlib.contextmanager
def _exclusively(path: Path) -> Generator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
