"""O-2: programs whose server is gone for a moment while they start."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from jobwire.cli.exits import Exit
from jobwire.local import LocalValkey, free_port
from tests.cli.runner import clean_env
from tests.support import Program, Proxy, clause
from tests.support.resp import Command

APP: Final = """
from jobwire import App

app = App("shop")

@app.handler("greet")
async def greet(ctx): ...

@app.handler("send", queue="mail", wire="bullmq")
async def send(ctx): ...
"""
STARTED: Final = {"gateway": "gateway on http", "worker": "worker with"}
HANDSHAKE: Final = ("HELLO", "AUTH", "PING", "CLIENT", "SCRIPT")
"""Sent by each new socket; `tests/valkey/` cuts those."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(APP)
    return tmp_path


def start(kind: str, folder: Path, url: str, **variables: str) -> Program:
    arguments = {"gateway": ("--port", str(free_port())), "worker": ("shop",)}[kind]
    env = clean_env(JOBWIRE_VALKEY_URL=url, **variables)
    return Program("-m", "jobwire", kind, *arguments, env=env, cwd=folder)


def kind_of(command: Command) -> tuple[str, ...]:
    """A command without its keys; a script by its hash."""
    return command.words[: 2 if command.name == "EVALSHA" else 1]


@clause("O-2")
@pytest.mark.parametrize("kind", STARTED)
def test_a_connection_lost_at_any_call_of_a_start_is_opened_again(
    valkey: LocalValkey, proxy: Proxy, folder: Path, kind: str
) -> None:
    """Regression: a gateway ended with an internal error where its first scan was cut off, a worker
    with 'Is it running?' where its registration was."""
    url = proxy.url(valkey.url)
    with start(kind, folder, url) as program:
        program.wait_for_line(STARTED[kind])
    calls = [each for each in map(kind_of, proxy.commands) if each[0] not in HANDSHAKE]
    assert len(calls) >= 2, "the groups, and the scan or the registration"
    for call in dict.fromkeys(calls):
        proxy.cut_reply(lambda command, call=call: kind_of(command) == call)
        with start(kind, folder, url) as program:
            program.wait_for_line(STARTED[kind])
        proxy.heal()


@clause("O-2")
@pytest.mark.parametrize("kind", STARTED)
def test_the_server_of_the_queues_is_waited_for(
    valkey: LocalValkey, proxy: Proxy, folder: Path, kind: str
) -> None:
    """Regression: a worker ended at once."""
    proxy.refuse()
    queues_url = proxy.url(valkey.url)
    with start(kind, folder, valkey.url, JOBWIRE_QUEUES_URL=queues_url) as program:
        program.wait_for_line("will retry")
        assert program.exit_code is None
        proxy.accept()
        program.wait_for_line(STARTED[kind])


@clause("O-2")
def test_a_worker_that_waits_for_a_server_can_be_stopped(
    valkey: LocalValkey, proxy: Proxy, folder: Path
) -> None:
    proxy.refuse()
    with start("worker", folder, valkey.url, JOBWIRE_QUEUES_URL=proxy.url(valkey.url)) as program:
        program.wait_for_line("will retry")
        program.terminate()
        assert program.wait() == 0
        assert STARTED["worker"] not in program.output


@clause("O-2")
@pytest.mark.parametrize("kind", STARTED)
def test_a_missing_server_of_the_queues_is_one_line_and_exit_3(
    valkey: LocalValkey, folder: Path, kind: str
) -> None:
    """Regression: the gateway ended with an internal error, because its other parts ran already."""
    arguments = {"gateway": ["gateway", "--port", "0"], "worker": ["worker", "shop"]}[kind]
    source = (
        "import sys; from jobwire.systems import backends; from jobwire.cli.main import main\n"
        f"backends.START_TIMEOUT_S = 0.3\nsys.exit(main({arguments}))"
    )
    address = f"127.0.0.1:{free_port()}"
    env = clean_env(JOBWIRE_VALKEY_URL=valkey.url, JOBWIRE_QUEUES_URL=f"valkey://{address}")
    with Program("-c", source, env=env, cwd=folder) as program:
        assert program.wait() == Exit.UNREACHABLE
        assert program.lines[-1].startswith("jobwire: Valkey: ")
        assert address in program.lines[-1]
        assert "Is it running" in program.lines[-1]
