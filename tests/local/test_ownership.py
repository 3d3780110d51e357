"""O-1, O-6: what another user of this machine put into a data directory is not trusted."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from jobwire import endpoints
from jobwire.client import Client, ClientError
from jobwire.local import DataDir, DataDirUnwritable, LocalValkey, free_port
from jobwire.local.s3_keys import S3Keys
from tests.support import Program, clause
from tests.support.listening import Listening
from tests.support.machine import needs_root

OTHER: Final = 65534


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / ".jobwire"
    made.mkdir(mode=0o700)
    return made


@clause("O-1")
def test_o01_a_planted_lock_is_not_followed(folder: Path, tmp_path: Path) -> None:
    """Regression: the target of a link named `lock` was truncated."""
    precious = tmp_path / "precious"
    precious.write_text("years of work")
    (folder / "lock").symlink_to(precious)
    with pytest.raises(DataDirUnwritable, match="link"):
        DataDir.hold(folder)
    assert precious.read_text() == "years of work"


@clause("O-1")
@needs_root
def test_o01_a_directory_of_another_user_is_not_used(folder: Path) -> None:
    os.chown(folder, OTHER, OTHER)
    with pytest.raises(DataDirUnwritable, match="belongs to another user"):
        DataDir.hold(folder)
    assert list(folder.iterdir()) == []


@clause("O-1")
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_o01_a_directory_that_others_may_write_is_not_used(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    with pytest.raises(DataDirUnwritable, match="others may write"):
        DataDir.hold(folder)


@clause("O-1")
@needs_root
def test_o01_a_link_of_another_user_to_a_directory_is_not_followed(
    folder: Path, tmp_path: Path
) -> None:
    link = tmp_path / "data"
    link.symlink_to(folder)
    DataDir.hold(link).release()
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(DataDirUnwritable, match="belongs to another user"):
        DataDir.hold(link)


@clause("O-1")
@needs_root
def test_o01_a_planted_password_is_not_adopted(folder: Path) -> None:
    password = folder / "password"
    password.write_text("known to the other")
    os.chown(password, OTHER, OTHER)
    with pytest.raises(DataDirUnwritable, match="belongs to another user"):
        LocalValkey(folder).start()


@clause("O-1")
def test_o01_planted_links_are_not_written_through(folder: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("years of work")
    for name in ("users.acl", "valkey.conf", "valkey.log", "keys.json"):
        (folder / name).symlink_to(precious)
    with LocalValkey(folder):
        pass
    with pytest.raises(OSError, match="link"):
        S3Keys.kept(folder)
    assert precious.read_text() == "years of work"


# ── the endpoints file ───────────────────────────────────────────────────────────────────────────


class Listener:
    """Records all bytes sent to a port."""

    def __init__(self) -> None:
        self.heard = b""
        self.listening = Listening(self._answer)
        self.url = f"http://127.0.0.1:{self.listening.port}"

    def _answer(self, peer: socket.socket) -> None:
        self.heard += peer.recv(65536)
        peer.sendall(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")


@pytest.fixture
def listener() -> Iterator[Listener]:
    opened = Listener()
    with opened.listening:
        yield opened


def endpoints_file(folder: Path, url: str, pid: int) -> Path:
    endpoints.write(folder, endpoints.Endpoints(url, "", None, {"gateway": pid}, "1"))
    return folder / endpoints.FILE


def submit_via(folder: Path) -> None:
    with pytest.raises(ClientError), Client(data_dir=folder) as client:
        client.get("nothing")


@pytest.fixture(autouse=True)
def api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOBWIRE_URL", raising=False)
    monkeypatch.setenv("JOBWIRE_API_KEY", "jw_secret")


@clause("O-6", "O-12")
def test_o06_the_key_is_sent_to_a_program_of_this_user(folder: Path, listener: Listener) -> None:
    endpoints_file(folder, listener.url, os.getpid())
    submit_via(folder)
    assert b"jw_secret" in listener.heard


@clause("O-6", "O-12")
@needs_root
@pytest.mark.parametrize("whose", ["file", "folder"])
def test_o06_no_key_is_sent_to_an_address_of_another_user(
    folder: Path, listener: Listener, whose: str
) -> None:
    path = endpoints_file(folder, listener.url, os.getpid())
    os.chown(path if whose == "file" else folder, OTHER, OTHER)
    submit_via(folder)
    assert listener.heard == b""


@clause("O-6", "O-12")
def test_o06_no_key_follows_a_link_or_a_file_that_others_may_write(
    folder: Path, listener: Listener, tmp_path: Path
) -> None:
    path = endpoints_file(folder, listener.url, os.getpid())
    path.chmod(0o666)
    submit_via(folder)
    path.rename(tmp_path / "moved")
    (tmp_path / "moved").chmod(0o600)
    path.symlink_to(tmp_path / "moved")
    submit_via(folder)
    assert listener.heard == b""


OTHERS_LISTENER: Final = """
import os, socket, sys
os.setuid(int(sys.argv[1]))
listening = socket.create_server(("127.0.0.1", 0))
print("port", listening.getsockname()[1], flush=True)
peer, _ = listening.accept()
print("heard", peer.recv(65536), flush=True)
"""


@clause("O-6", "O-12")
@needs_root
def test_o06_no_key_is_sent_to_another_user_on_the_same_port(folder: Path) -> None:
    """The program has ended without removing its endpoints file."""
    with Program.script(OTHERS_LISTENER, str(OTHER)) as other:
        port = other.wait_for_line("port").split()[-1]
        endpoints_file(folder, f"http://127.0.0.1:{port}", os.getpid())
        submit_via(folder)
        with socket.create_connection(("127.0.0.1", int(port))) as peer:
            peer.sendall(b"the first that came")
            assert "the first that came" in other.wait_for_line("heard")


@clause("O-6", "O-12")
def test_o06_no_key_is_sent_for_a_program_that_has_ended(folder: Path) -> None:
    endpoints_file(folder, f"http://127.0.0.1:{free_port()}", 2**22 + 1)
    with pytest.raises(ClientError, match="has ended"), Client(data_dir=folder) as client:
        client.get("nothing")


@clause("O-6", "O-12")
def test_o06_the_key_of_one_address_is_not_sent_to_another(
    monkeypatch: pytest.MonkeyPatch, listener: Listener
) -> None:
    monkeypatch.setenv("JOBWIRE_URL", "https://jobs.example")
    with pytest.raises(ClientError), Client(listener.url) as client:
        client.get("nothing")
    assert listener.heard
    assert b"jw_secret" not in listener.heard


@clause("O-1")
def test_o01_an_endpoints_file_that_is_no_json_is_ignored(folder: Path) -> None:
    (folder / endpoints.FILE).write_text(json.dumps({"http": 7}))
    (folder / endpoints.FILE).chmod(0o600)
    assert endpoints.read(folder) is None
