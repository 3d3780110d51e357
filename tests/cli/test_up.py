"""`jobwire up`: one supervised program that starts, heals and stops as a whole."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from redis import Redis

from jobwire import __version__, endpoints
from jobwire.local import LocalValkey
from tests.cli.running import Up, is_gone, jobwire
from tests.support import clause, wait_until_sync

PARTS = {"gateway", "valkey", "s3", "worker"}


def plain(up: Up) -> Redis:
    """A plain client on the program's own server."""
    url = up.card()["valkey"].replace("valkey://", "redis://")
    return Redis.from_url(url, decode_responses=True)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A program that many tests look at, and none harms."""
    with Up(tmp_path_factory.mktemp("up")) as program:
        yield program.wait_until_up()


@clause("O-1", "O-7", "O-12")
def test_it_is_ready_and_names_each_part(up: Up) -> None:
    status, parts = up.ready()
    assert status == 200
    assert parts.keys() == PARTS
    assert all(part["state"] == "ready" for part in parts.values())
    assert httpx.get(f"{up.url}/version", trust_env=False).json()["version"] == __version__


@clause("O-1")
def test_its_card_says_where_everything_is_and_only_to_its_owner(up: Up) -> None:
    file = up.data_dir / "endpoints.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    card = up.card()
    assert card.keys() == {"http", "valkey", "s3", "pids", "version"}
    assert card["http"].replace("localhost", "127.0.0.1") == up.url
    assert card["version"] == __version__
    assert card["pids"].keys() == PARTS
    assert card["s3"].keys() == {"endpoint", "bucket", "access_key", "secret_key", "region"}
    with plain(up) as client:
        assert client.ping()
    for pid in card["pids"].values():
        assert not is_gone(pid)


@clause("O-12")
def test_clients_find_it_by_its_card_or_by_a_variable(up: Up) -> None:
    found = endpoints.find(up.data_dir, {})
    assert found is not None
    assert found.url == up.card()["http"]
    named = endpoints.find(up.data_dir, {"JOBWIRE_URL": "http://x/", "JOBWIRE_API_KEY": "jw_k"})
    assert named is not None
    assert (named.url, named.api_key) == ("http://x", "jw_k")
    assert endpoints.find(up.cwd / "elsewhere", {}) is None
    assert up.card()["http"] in jobwire(cwd=up.cwd).stdout


@clause("O-1")
def test_everything_listens_on_loopback_only(up: Up) -> None:
    listening = [
        connection.laddr.ip
        for pid in up.processes()
        for connection in psutil.Process(pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) > len(PARTS)
    assert set(listening) == {"127.0.0.1"}


@clause("O-1")
def test_a_second_start_on_the_same_data_says_who_holds_it(up: Up) -> None:
    done = jobwire("up", "--port", "0", cwd=up.cwd)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"held by process {up.program.pid} ({up.card()['http']})" in line
    assert up.ready()[0] == 200


@clause("O-1")
def test_a_port_in_use_is_one_line_with_its_holder_and_a_free_one(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = jobwire("up", "--port", str(port), cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"jobwire: port {port} on 127.0.0.1 is in use by ")
    if sys.platform == "linux":
        assert f"(process {os.getpid()})" in line
    assert "or choose another port" in line
    assert not (tmp_path / ".jobwire" / "valkey").exists()
    assert not (tmp_path / ".jobwire" / "endpoints.json").exists()


@clause("O-1")
@pytest.mark.parametrize("place", ["a-file", "/proc/nowhere"])
def test_a_data_dir_that_cannot_be_written_is_one_line(tmp_path: Path, place: str) -> None:
    (tmp_path / "a-file").write_text("in the way")
    done = jobwire("up", "--port", "0", "--data-dir", place, cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("jobwire: cannot write to the data directory ")
    assert line.endswith("or choose another directory")


@clause("O-1", "O-3")
@pytest.mark.parametrize(
    ("text", "env", "line"),
    [
        ("valkye: {}", {}, "jobwire.yaml:1 valkye: unknown setting; did you mean 'valkey'?"),
        ("gateway: {port: -1}", {}, "jobwire.yaml:1 gateway.port: -1 is no port"),
        ("", {"JOBWIRE_GATEWAY_POTR": "1"}, "environment JOBWIRE_GATEWAY_POTR: unknown setting"),
        ("", {"JOBWIRE_UP_DRAIN": "1m"}, "JOBWIRE_UP_DRAIN up.drain: must not be longer than 8s"),
        ("", {"JOBWIRE_GATEWAY_HOST": "0.0.0.0"}, "JOBWIRE_GATEWAY_HOST gateway.host: 0.0.0.0 can"),
        ("", {"JOBWIRE_UP_EMBEDDED": "no"}, "valkey.url: is needed when nothing is embedded"),
        ("", {"JOBWIRE_GATEWAY_HOST": "nowhere.invalid"}, "JOBWIRE_GATEWAY_HOST gateway.host: no"),
    ],
)
def test_a_wrong_setting_is_one_line_and_nothing_is_started(
    tmp_path: Path, text: str, env: dict[str, str], line: str
) -> None:
    (tmp_path / "jobwire.yaml").write_text(text)
    done = jobwire("up", cwd=tmp_path, env=env)
    assert done.returncode == 2
    assert done.stderr.startswith(f"jobwire: {line}")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / ".jobwire").exists()


@clause("O-1")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_everything_in_order(tmp_path: Path, signum: signal.Signals) -> None:
    with Up(tmp_path) as up:
        pids = up.wait_until_up().processes()
        assert len(pids) == 1 + len(PARTS)
        up.send(signum)
        assert up.program.wait() == 0
        up.wait_until_gone(pids)
        said = [line for line in up.program.lines if " INFO " not in line]
        assert said[-2:] == ["Stopping.", "Stopped."]
    assert not (up.data_dir / "endpoints.json").exists()
    assert not (up.data_dir / "parts.json").exists()


@clause("O-1")
def test_kill_9_leaves_no_process_behind_and_the_next_start_finds_the_data(tmp_path: Path) -> None:
    with Up(tmp_path) as up:
        pids = up.wait_until_up().processes()
        with plain(up) as client:
            client.set("kept", "yes")
        port = up.url.rpartition(":")[2]
        up.send(signal.SIGKILL)
        assert up.program.wait() == -signal.SIGKILL
        # At once, on the same port and data: it waits for the old parts to be gone.
        with Up(tmp_path, "--port", port) as again:
            again.wait_until_up()
            up.wait_until_gone(pids)
            assert again.ready()[0] == 200
            with plain(again) as client:
                assert client.get("kept") == "yes"


@clause("O-1", "O-7")
def test_a_part_that_dies_comes_back_and_readyz_says_so(tmp_path: Path) -> None:
    with Up(tmp_path) as up:
        up.wait_until_up()
        for name in PARTS:
            before = up.card()["pids"][name]
            os.kill(before, signal.SIGKILL)

            def back(name: str = name, before: int = before) -> bool:
                # The listening socket outlives the gateway: a request waits, it is not refused. But
                # one that the dying gateway has just accepted dies with it.
                with contextlib.suppress(httpx.TransportError):
                    return up.ready()[0] == 200 and up.card()["pids"][name] != before
                return False

            # The S3 server's own parts may need some rounds to find each other again.
            wait_until_sync(back, f"{name} to be back", timeout_s=120)
            # Told after it is so.
            up.program.wait_for_line(f"{name} is back")
            assert f"{name} ended; it starts again" in up.program.output
        _a_part_that_cannot_come_back(up)


def _a_part_that_cannot_come_back(up: Up) -> None:
    """Somebody takes the server's port while it is down."""
    port = int(up.card()["valkey"].rpartition(":")[2].partition("/")[0])
    with contextlib.ExitStack() as held:

        def taken() -> bool:
            with contextlib.suppress(ProcessLookupError):
                os.kill(up.card()["pids"]["valkey"], signal.SIGKILL)
            with contextlib.suppress(OSError):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
                return True
            return False

        wait_until_sync(taken, "the port")

        def told() -> bool:
            status, parts = up.ready()
            part = parts["valkey"]
            return status == 503 and part["state"] == "restarting" and "port" in part["note"]

        wait_until_sync(told, "/readyz to say so")
        assert "started again by itself" in up.ready()[1]["valkey"]["what_to_do"]
        assert httpx.get(f"{up.url}/livez", trust_env=False).status_code == 200
    wait_until_sync(lambda: up.ready()[0] == 200, "valkey to be back", timeout_s=60)


@clause("O-1")
def test_a_job_runs_through_all_parts(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from jobwire import App\n"
        "app = App()\n"
        "@app.handler('double')\n"
        "async def double(payload: dict[str, int]) -> int:\n"
        "    return 2 * payload['n']\n"
    )
    with Up(tmp_path, "--app", "shop:app") as up:
        up.wait_until_up()
        answer = httpx.post(
            f"{up.url}/v1/jobs",
            json={"task": "double", "payload": {"n": 21}},
            headers={"Prefer": "wait=30"},
            timeout=60,
            trust_env=False,
        )
        assert answer.json()["status"] == "done"
        assert answer.json()["result"] == 42
        told = httpx.get(f"{up.url}/v1/tasks", trust_env=False).json()["tasks"]
        live = {task["name"] for task in told if task["live"]}
        assert live == {"double", "chat", "plan", "code", "tool", "rag", "embed"}


@clause("O-1")
def test_servers_of_ones_own_are_used_and_left_alone(tmp_path: Path, valkey: LocalValkey) -> None:
    with Up(tmp_path, "--no-embedded", "--valkey", valkey.url) as up:
        up.wait_until_up()
        assert up.ready()[1].keys() == {"gateway", "valkey", "worker"}
        card = up.card()
        assert (card["valkey"], card["s3"]) == (valkey.url, None)
        assert card["pids"].keys() == {"gateway", "worker"}
        # A gateway that cannot end by itself: the second signal does not wait for it.
        pids = up.processes()
        os.kill(card["pids"]["gateway"], signal.SIGSTOP)
        up.send(signal.SIGTERM)
        up.program.wait_for_line("Stopping.")
        up.send(signal.SIGTERM)
        assert up.program.wait() == 0
        up.wait_until_gone(pids)
    assert valkey.alive


@clause("O-1")
def test_a_server_that_refuses_us_is_one_line_and_nothing_is_left(
    tmp_path: Path, valkey: LocalValkey
) -> None:
    url = f"valkey://jobwire:wrong@{valkey.address}/0"
    env = {"JOBWIRE_VALKEY_URL": url}
    done = jobwire("up", "--no-embedded", "--port", "0", cwd=tmp_path, env=env)
    assert done.returncode == 3
    lines = [line for line in done.stderr.splitlines() if line.startswith("jobwire: ")]
    assert len(lines) == 1
    assert "wrong name or password" in lines[0]
    assert "wrong@" not in done.stderr
    assert not (tmp_path / ".jobwire" / "endpoints.json").exists()


@clause("O-7")
def test_the_doctor_finds_the_running_program_well(up: Up) -> None:
    done = jobwire("doctor", cwd=up.cwd)
    findings = {finding["check"]: finding for finding in map(json.loads, done.stdout.splitlines())}
    assert {finding["verdict"] for finding in findings.values()} <= {"ok", "note"}, findings
    assert done.returncode == 0
    for check in ("program", "part s3", "valkey", "valkey access", "bucket", "bucket promises"):
        assert findings[check]["verdict"] == "ok"
