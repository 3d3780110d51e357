"""`jobwire valkey`: a command to the server of the running program."""

from __future__ import annotations

import json
import os
from pathlib import Path

from jobwire import endpoints
from jobwire.cli.exits import Exit
from jobwire.endpoints import Endpoints
from jobwire.local import LocalValkey
from tests.cli.runner import jobwire
from tests.support import Plain, clause


@clause("O-2")
def test_o02_a_command_reaches_the_server_of_the_running_program(
    valkey: LocalValkey, plain: Plain, tmp_path: Path
) -> None:
    """Its address and password are those of the endpoints file, from a subfolder too."""
    (tmp_path / ".jobwire").mkdir(mode=0o700)
    running = Endpoints("http://127.0.0.1:1", valkey.url, None, {"up": os.getpid()}, "0")
    endpoints.write(tmp_path / ".jobwire", running)
    below = tmp_path / "shop" / "jobs"
    below.mkdir(parents=True)
    plain.hset("h", mapping={"name": "a\x1b[31mred", "n": "7"})
    plain.expire("h", 60)

    def printed(*words: str) -> list[str]:
        done = jobwire("valkey", *words, cwd=below)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    assert printed("HGETALL", "h") == ["name", "a\\x1b[31mred", "n", "7"]
    assert printed("HLEN", "h") == ["2"]
    assert printed("GET", "missing") == ["(nil)"]
    assert "# Persistence" in printed("INFO", "persistence")
    assert printed("--json", "HMGET", "h", "n", "-x") == ['["7",null]']
    assert json.loads(printed("--json", "HGETALL", "h")[0])["n"] == "7"
    for words, code, line in (
        (("NOPE",), Exit.REFUSED, "jobwire: ERR unknown command"),
        (("BLPOP", "h", "0"), Exit.USAGE, "jobwire: BLPOP waits or changes the connection"),
        (("HGETALL",), Exit.REFUSED, "jobwire: ERR wrong number of arguments"),
    ):
        done = jobwire("valkey", *words, cwd=below)
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr.startswith(line)
        assert len(done.stderr.splitlines()) == 1


@clause("O-2")
def test_o02_without_a_server_the_command_says_how_to_start_one(tmp_path: Path) -> None:
    done = jobwire("valkey", "PING", cwd=tmp_path)
    assert done.returncode == Exit.UNREACHABLE
    assert "no server is known" in done.stderr
    assert "jobwire up" in done.stderr
