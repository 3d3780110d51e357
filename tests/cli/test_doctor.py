"""`jobwire doctor`: findings, fixes and exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.slow_disk import slow_disk
from jobwire.doctor.valkey import clock_ahead_s
from jobwire.local import LocalValkey, free_port
from tests.cli.runner import jobwire
from tests.standins.server import Call, Request, Standin, json_reply
from tests.support import clause, wait_until_sync
from tests.support.faketime import server_clock
from tests.support.program import ROOT
from tests.support.servers import plain_client

Findings = dict[str, dict[str, str]]


def doctor(tmp_path: Path, *arguments: str, **env: str) -> tuple[int, Findings]:
    done = jobwire("doctor", *arguments, cwd=tmp_path, env=env)
    return done.returncode, {
        finding["check"]: finding for finding in map(json.loads, done.stdout.splitlines())
    }


@clause("O-7")
def test_a_healthy_installation(tmp_path: Path, valkey: LocalValkey) -> None:
    code, found = doctor(tmp_path, "--valkey", valkey.url)
    assert code == 0
    faults = [name for name, finding in found.items() if finding["verdict"] == "fault"]
    assert faults == []
    assert found["valkey"]["found"].startswith("valkey 9")
    for name in ("python", "data dir", "open files", "valkey persistence", "clock"):
        assert name in found


@clause("O-7")
@pytest.mark.parametrize(
    ("name", "value", "check", "fix"),
    [
        ("maxmemory-policy", "allkeys-lru", "valkey eviction", "noeviction"),
        ("appendonly", "no", "valkey persistence", "appendonly yes"),
        ("maxmemory", "1100000", "valkey memory", "raise maxmemory"),
        ("stream-node-max-bytes", "4096", "valkey streams", "stream-node-max-bytes 512"),
    ],
)
def test_each_fault_of_the_server_has_its_fix(
    tmp_path: Path,
    valkey: LocalValkey,
    server_setting: Callable[[str, str], None],
    name: str,
    value: str,
    check: str,
    fix: str,
) -> None:
    server_setting(name, value)
    code, found = doctor(tmp_path, "--valkey", valkey.url)
    finding = found[check]
    assert finding["verdict"] == ("note" if check == "valkey streams" else "fault")
    assert finding["why"]
    assert fix in finding["fix"]
    assert code == (0 if finding["verdict"] == "note" else 1)


@clause("O-7", "O-2")
def test_an_unreachable_server_is_exit_3(tmp_path: Path) -> None:
    code, found = doctor(tmp_path, "--valkey", f"valkey://127.0.0.1:{free_port()}")
    assert code == 3
    assert found["valkey"]["verdict"] == "unreachable"
    assert found["valkey"]["fix"]


@clause("O-7")
def test_an_unreachable_program_is_reported(tmp_path: Path) -> None:
    code, found = doctor(tmp_path, JOBWIRE_URL=f"http://127.0.0.1:{free_port()}")
    assert code == 3
    assert found["program"]["verdict"] == "unreachable"
    assert "(by JOBWIRE_URL) does not answer" in found["program"]["found"]


class OtherProgram(Standin):
    """Answers every request like a program that is not jobwire."""

    def call(self, request: Request) -> Call:
        return request.path, lambda: json_reply(200, {"parts": ["engine", 4]})


@clause("O-7")
def test_another_program_at_the_address_is_reported(tmp_path: Path) -> None:
    with OtherProgram() as other:
        code, found = doctor(tmp_path, JOBWIRE_URL=other.url)
    assert code == 1
    assert found["program"]["verdict"] == "fault"
    assert "answers 200, but not like jobwire" in found["program"]["found"]


@clause("O-7")
def test_a_data_dir_that_other_users_can_read_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "open to all").mkdir()
    (tmp_path / "open to all").chmod(0o755)
    code, found = doctor(tmp_path, "--data-dir", "open to all")
    assert code == 1
    assert found["data dir rights"]["fix"] == "chmod 700 'open to all'"
    (tmp_path / "file").touch()
    code, found = doctor(tmp_path, "--data-dir", "file")
    assert code == 1
    assert found["data dir"]["verdict"] == "fault"


@clause("O-7")
@pytest.mark.skipif(sys.platform != "linux", reason="stops a thread of the server by ptrace")
def test_o7_a_disk_whose_syncs_are_slow(tmp_path: Path) -> None:
    """A killed server would lose accepted jobs; `aof_delayed_fsync` is still 0."""
    with LocalValkey(tmp_path / "valkey", admin=True) as server, plain_client(server) as plain:
        code, found = doctor(tmp_path, "--valkey", server.url)
        assert found["valkey disk"]["verdict"] == "ok"
        with slow_disk(server.pid):
            plain.set("written", "1")
            wait_until_sync(lambda: plain.info("persistence")["aof_pending_bio_fsync"], "an fsync")
            code, found = doctor(tmp_path, "--valkey", server.url)
            assert plain.info("persistence")["aof_delayed_fsync"] == 0
        assert code == 1
        assert found["valkey disk"]["verdict"] == "fault"
        assert "fsync" in found["valkey disk"]["found"]


@pytest.mark.parametrize(
    ("server_s", "ahead_s"), [(99, -1), (100, 0), (103, 0), (105, 0), (107, 2)]
)
def test_a_late_answer_is_no_difference_of_clocks(server_s: float, ahead_s: float) -> None:
    assert clock_ahead_s(server_s, before_s=100, after_s=105) == ahead_s


@clause("O-7")
def test_o7_a_server_clock_that_is_wrong_or_was_set_back(tmp_path: Path) -> None:
    clock = server_clock(tmp_path)
    if clock is None:
        pytest.skip("libfaketime is not installed (Debian: apt-get install faketime)")
    clock.set(3600)
    with LocalValkey(tmp_path / "valkey", admin=True, program=clock.program) as server:
        with plain_client(server) as plain:
            plain.call("XADD", "jobs:stream", "*", "job_id", "x")
        code, found = doctor(tmp_path, "--valkey", server.url)
        assert code == 1
        assert found["clock"]["verdict"] == "fault"
        assert "+3600 s" in found["clock"]["found"]
        assert found["clock history"]["verdict"] == "ok"

        clock.set(0)
        code, found = doctor(tmp_path, "--valkey", server.url)
        assert code == 1
        assert found["clock"]["verdict"] == "ok"
        assert found["clock history"]["verdict"] == "fault"
        assert "set back" in found["clock history"]["found"]


@clause("O-7")
def test_a_server_without_lua_is_named_by_doctor_and_at_the_start(tmp_path: Path) -> None:
    """Valkey 9.1 has Lua as a module."""
    extra = ("enable-module-command yes",)
    with LocalValkey(tmp_path / "valkey", admin=True, extra=extra) as server:
        with plain_client(server) as plain:
            if "lua" not in str(plain.call("MODULE", "LIST")):
                pytest.skip("this server has Lua built in")
            plain.call("MODULE", "UNLOAD", "lua")
        code, found = doctor(tmp_path, "--valkey", server.url)
        assert code != 0
        assert found["valkey scripts"]["verdict"] == "fault"
        assert found["valkey scripts"]["found"] == "it has no Lua"
        env = {"JOBWIRE_VALKEY_URL": server.url, "JOBWIRE_DATA_DIR": str(tmp_path)}
        for program in (("gateway", "--port", str(free_port())), ("worker", "tests.fleet.app:app")):
            done = jobwire(*program, cwd=ROOT, env=env)
            assert done.returncode == 3, done.stderr
            assert "has no Lua" in done.stderr
