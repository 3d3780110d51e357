"""`jobwire up`: one supervised program that starts, restarts its parts and stops."""

from __future__ import annotations

import contextlib
import json
import os
import re
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

from jobwire import Client, __version__, endpoints
from jobwire.local import LocalValkey
from jobwire.systems.system import SYSTEMS
from tests.cli.runner import Up, clean_env, is_gone, jobwire
from tests.support import clause, wait_until_sync
from tests.support.machine import needs_root
from tests.support.other_user import exchange

PARTS = {"gateway", "valkey", "s3", "worker"}
# The tests of the program that is started once.
shared = pytest.mark.xdist_group("up")


def plain(up: Up) -> Redis:
    """A plain client of the embedded server."""
    url = up.endpoints()["valkey"].replace("valkey://", "redis://")
    return Redis.from_url(url, decode_responses=True)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A program that several tests share and do not change."""
    with Up(tmp_path_factory.mktemp("up")) as program:
        yield program.wait_until_up()


@shared
@clause("O-9")
def test_o09_every_operation_has_a_written_summary(up: Up) -> None:
    document = httpx.get(f"{up.url}/openapi.json", trust_env=False, timeout=60).json()
    operations = [each for item in document["paths"].values() for each in item.values()]
    assert {tag for each in operations for tag in each["tags"]} >= {
        *("jobs", "queues", "images", "predictions", "fleet"),
    }
    for each in operations:
        # FastAPI makes a summary of the function's name, and the operation id begins with it.
        name = re.sub(r"\W+", "_", each["summary"].lower())
        assert not each["operationId"].startswith(name), each["summary"]
        assert not each["summary"].endswith("."), each["summary"]


@shared
@clause("O-1", "O-7", "O-12")
def test_readyz_lists_each_part(up: Up) -> None:
    status, parts = up.ready()
    assert status == 200
    assert parts.keys() == PARTS | {"uploads", "image records"}
    assert all(part["state"] == "ready" for part in parts.values())
    assert httpx.get(f"{up.url}/version", trust_env=False).json()["version"] == __version__


@shared
@clause("O-6")
@needs_root
def test_o06_the_program_serves_its_own_user_and_says_so(up: Up) -> None:
    assert '"access":"root only (gateway.local_users: any admits other users)"' in up.program.output
    port = int(up.url.rpartition(":")[2])
    head = "GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    asked = (socket.AF_INET, ("127.0.0.1", 0), ("127.0.0.1", port), head, "")
    assert exchange(asked)[0].startswith("HTTP/1.1 401")
    assert exchange(asked, uid=0)[0].startswith("HTTP/1.1 200")


@shared
@clause("O-1")
def test_the_endpoints_file_is_complete_and_private(up: Up) -> None:
    file = up.data_dir / "endpoints.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    published = up.endpoints()
    assert published.keys() == {"http", "valkey", "s3", "pids", "version", "systems"}
    assert published["http"].replace("localhost", "127.0.0.1") == up.url
    assert published["version"] == __version__
    assert published["pids"].keys() == PARTS
    assert published["s3"].keys() == {"endpoint", "bucket", "access_key", "secret_key", "region"}
    with plain(up) as client:
        assert client.ping()
    for pid in published["pids"].values():
        assert not is_gone(pid)


@shared
@clause("O-12")
def test_clients_find_it_by_the_endpoints_file_or_a_variable(up: Up) -> None:
    found = endpoints.find(up.data_dir, {})
    assert found is not None
    assert found.url == up.endpoints()["http"]
    named = endpoints.find(up.data_dir, {"JOBWIRE_URL": "http://x/", "JOBWIRE_API_KEY": "jw_k"})
    assert named is not None
    assert (named.url, named.api_key) == ("http://x", "jw_k")
    assert endpoints.find(up.cwd / "elsewhere", {}) is None
    assert up.endpoints()["http"] in jobwire(cwd=up.cwd).stdout


@shared
@clause("O-12")
def test_o12_it_is_found_from_subfolders(up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    below = up.cwd / "src" / "shop"
    below.mkdir(parents=True)
    assert jobwire("list", cwd=below).returncode == 0
    for name in set(os.environ) - set(clean_env()):
        monkeypatch.delenv(name)
    monkeypatch.chdir(below)
    with Client() as client:
        assert client.tasks()
    (below.parent / ".jobwire").mkdir(mode=0o777)
    (below.parent / ".jobwire").chmod(0o777)
    (below.parent / ".jobwire" / "endpoints.json").write_text("{}")
    assert endpoints.nearest(Path(".jobwire")) == up.cwd / ".jobwire", "others may write that one"


@shared
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


@shared
@clause("O-1")
def test_a_second_start_on_the_same_data_is_refused(up: Up) -> None:
    done = jobwire("up", "--port", "0", cwd=up.cwd)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"in use by process {up.program.pid} ({up.endpoints()['http']})" in line
    assert up.ready()[0] == 200


@clause("O-1", "O-2")
def test_a_port_in_use_is_one_line_with_its_process(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = jobwire("up", "--port", str(port), cwd=tmp_path)
    assert done.returncode == 7
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
        ("gateway: {port: -1}", {}, "jobwire.yaml:1 gateway.port: -1 is not a port"),
        ("", {"JOBWIRE_GATEWAY_POTR": "1"}, "environment JOBWIRE_GATEWAY_POTR: unknown setting"),
        ("", {"JOBWIRE_UP_DRAIN": "1m"}, "JOBWIRE_UP_DRAIN up.drain: must not be longer than 8s"),
        ("", {"JOBWIRE_GATEWAY_HOST": "0.0.0.0"}, "JOBWIRE_GATEWAY_HOST gateway.host: 0.0.0.0 can"),
        ("", {"JOBWIRE_UP_EMBEDDED": "no"}, "valkey.url: is required without embedded servers"),
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
@pytest.mark.parametrize(
    ("signum", "systems", "parts"),
    [(signal.SIGTERM, ",".join(SYSTEMS), PARTS), (signal.SIGINT, "jobs", PARTS - {"s3"})],
)
def test_a_signal_stops_everything_in_order(
    tmp_path: Path, signum: signal.Signals, systems: str, parts: set[str]
) -> None:
    with Up(tmp_path, "--only", systems) as up:
        pids = up.wait_until_up().processes()
        assert len(pids) == 1 + len(parts)
        up.send(signum)
        assert up.program.wait() == 0
        up.wait_until_gone(pids)
        lines = [line for line in up.program.lines if " INFO " not in line]
        assert lines[-2:] == ["Stopping.", "Stopped."]
    assert not (up.data_dir / "endpoints.json").exists()
    assert not (up.data_dir / "parts.json").exists()


@clause("O-1")
def test_kill_9_leaves_no_process_and_the_next_start_has_the_data(tmp_path: Path) -> None:
    with Up(tmp_path) as up:
        pids = up.wait_until_up().processes()
        with plain(up) as client:
            client.set("kept", "yes")
        port = up.url.rpartition(":")[2]
        up.send(signal.SIGKILL)
        assert up.program.wait() == -signal.SIGKILL
        # At once, on the same port and data: it waits until the old parts have ended.
        with Up(tmp_path, "--port", port, "--only", "jobs") as again:
            again.wait_until_up()
            up.wait_until_gone(pids)
            assert again.ready()[0] == 200
            with plain(again) as client:
                assert client.get("kept") == "yes"


@clause("O-1", "O-7")
def test_a_killed_part_is_restarted_and_readyz_reports_it(tmp_path: Path) -> None:
    with Up(tmp_path) as up:
        up.wait_until_up()
        for name in PARTS:
            before = up.endpoints()["pids"][name]
            os.kill(before, signal.SIGKILL)

            def back(name: str = name, before: int = before) -> bool:
                # The listening socket outlives the gateway: a request waits and is not refused. But
                # a request that the killed gateway had accepted fails.
                with contextlib.suppress(httpx.TransportError):
                    return up.ready()[0] == 200 and up.endpoints()["pids"][name] != before
                return False

            wait_until_sync(back, f"{name} to be back")
            # Logged after the state has changed.
            up.program.wait_for_line(f"part restarted part={name}")
            assert f"part exited part={name} after_s=" in up.program.output
        _check_a_part_that_cannot_restart(up)


def _check_a_part_that_cannot_restart(up: Up) -> None:
    """Another program takes the server's port while it is down."""
    port = int(up.endpoints()["valkey"].rpartition(":")[2].partition("/")[0])
    with contextlib.ExitStack() as held:

        def taken() -> bool:
            with contextlib.suppress(ProcessLookupError):
                os.kill(up.endpoints()["pids"]["valkey"], signal.SIGKILL)
            with contextlib.suppress(OSError):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
                return True
            return False

        wait_until_sync(taken, "the port")

        def reported() -> bool:
            status, parts = up.ready()
            part = parts["valkey"]
            return status == 503 and part["state"] == "restarting" and "port" in part["note"]

        wait_until_sync(reported, "/readyz to report it")
        assert "it restarts automatically" in up.ready()[1]["valkey"]["what_to_do"]
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
    with Up(tmp_path, "--app", "shop:app", "--only", "jobs") as up:
        up.wait_until_up()
        response = httpx.post(
            f"{up.url}/v1/jobs",
            json={"task": "double", "payload": {"n": 21}},
            headers={"Prefer": "wait=30"},
            timeout=60,
            trust_env=False,
        )
        assert response.json()["status"] == "done"
        assert response.json()["result"] == 42
        tasks = httpx.get(f"{up.url}/v1/tasks", trust_env=False).json()["tasks"]
        live = {task["name"] for task in tasks if task["live"]}
        assert live == {"double", "chat", "plan", "code", "tool", "rag", "embed"}


@clause("O-1")
def test_external_servers_are_used_and_not_stopped(tmp_path: Path, valkey: LocalValkey) -> None:
    with Up(tmp_path, "--no-embedded", "--valkey", valkey.url) as up:
        up.wait_until_up()
        assert up.ready()[1].keys() == {"gateway", "valkey", "worker"}
        published = up.endpoints()
        assert (published["valkey"], published["s3"]) == (valkey.url, None)
        assert published["pids"].keys() == {"gateway", "worker"}
        # A frozen gateway: the second signal does not wait for it.
        pids = up.processes()
        os.kill(published["pids"]["gateway"], signal.SIGSTOP)
        up.send(signal.SIGTERM)
        up.program.wait_for_line("Stopping.")
        up.send(signal.SIGTERM)
        assert up.program.wait() == 0
        up.wait_until_gone(pids)
    assert valkey.alive


@clause("O-1")
def test_a_wrong_password_is_one_line_and_no_files(tmp_path: Path, valkey: LocalValkey) -> None:
    url = f"valkey://jobwire:wrong@{valkey.address}/0"
    env = {"JOBWIRE_VALKEY_URL": url}
    done = jobwire("up", "--no-embedded", "--port", "0", cwd=tmp_path, env=env)
    assert done.returncode == 3
    lines = [line for line in done.stderr.splitlines() if line.startswith("jobwire: ")]
    assert len(lines) == 1
    assert "wrong name or password" in lines[0]
    assert "wrong@" not in done.stderr
    assert not (tmp_path / ".jobwire" / "endpoints.json").exists()


@shared
@clause("O-7")
def test_o7_the_doctor_has_nothing_to_say_about_a_new_installation(up: Up) -> None:
    done = jobwire("doctor", cwd=up.cwd)
    findings = {finding["check"]: finding for finding in map(json.loads, done.stdout.splitlines())}
    assert {finding["verdict"] for finding in findings.values()} <= {"ok", "note"}, findings
    assert done.returncode == 0
    # A machine's slow disk or few open files are worth a note; of a new installation nothing is.
    notes = [check for check, finding in findings.items() if finding["verdict"] == "note"]
    assert set(notes) <= {"valkey disk", "open files"}, findings
    for check in ("program", "part s3", "valkey", "valkey access", "bucket", "bucket promises"):
        assert findings[check]["verdict"] == "ok"
    assert findings["bucket lifecycle"]["found"] == "4 rules of ours"
