"""O-6, O-16: API keys in a file: changes hold without a restart, streams of revoked keys end."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import pytest

from jobwire.gateway.auth import hash_of
from jobwire.gateway.settings import GatewaySettings
from jobwire.private_files import UnusableFile
from tests.cli.runner import jobwire
from tests.gateway.events import EventsFeature
from tests.gateway.features import test_feature
from tests.gateway.server import Serving, bearer, key
from tests.gateway.test_attacks import until_closed
from tests.support import clause, wait_until_sync
from tests.support.machine import needs_root

ME: Final = "/v1/me"
EVENTS: Final = "/channels/a/events"


def write(file: Path, *names: str, scopes: tuple[str, ...] = ("read",)) -> None:
    keys = [{"name": name, "hash": hash_of(f"jw_{name}"), "scopes": scopes} for name in names]
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps({"keys": keys}))
    draft.chmod(0o600)
    draft.replace(file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


@pytest.fixture
def served_events() -> EventsFeature:
    return EventsFeature()


@pytest.fixture
def served(file: Path, served_events: EventsFeature) -> Iterator[Serving]:
    write(file, "a", "b")
    settings = GatewaySettings(keys=(key("own", "read"),), keys_file=str(file))
    with Serving(settings, test_feature(), served_events) as started:
        yield started


def status(served: Serving, name: str) -> int:
    return served.client.get(ME, headers=bearer(name)).status_code


def wait_for_status(served: Serving, name: str, wanted: int) -> None:
    wait_until_sync(lambda: status(served, name) == wanted, f"{wanted} for the key {name}")


@contextlib.contextmanager
def opened_stream(served: Serving, name: str) -> Generator[socket.socket]:
    with served.open_socket() as peer:
        lines = (f"GET {EVENTS} HTTP/1.1", "Host: localhost", f"Authorization: Bearer jw_{name}")
        peer.sendall("\r\n".join([*lines, "", ""]).encode())
        assert peer.recv(12) == b"HTTP/1.1 200"
        yield peer


@clause("O-6")
def test_o06_a_key_of_the_file_holds_without_a_restart(served: Serving, file: Path) -> None:
    assert [status(served, name) for name in ("a", "own", "new")] == [200, 200, 401]
    write(file, "a", "new")
    wait_for_status(served, "new", 200)
    assert [status(served, name) for name in ("a", "own", "b")] == [200, 200, 401]


@clause("O-6")
def test_o06_streams_of_a_revoked_key_end_and_others_stay(
    served: Serving, served_events: EventsFeature, file: Path
) -> None:
    with opened_stream(served, "a") as revoked, opened_stream(served, "b"):
        write(file, "b")
        until_closed(revoked)
        assert len(served_events.watchers["a"]) == 1, "the other stream stays"
    assert status(served, "a") == 401


@clause("O-6")
def test_o06_a_stream_token_of_a_revoked_key_is_refused(served: Serving, file: Path) -> None:
    made = served.client.post(
        "/v1/stream-tokens", headers=bearer("a"), json={"path": EVENTS}
    ).json()
    write(file, "b")
    wait_for_status(served, "a", 401)
    assert served.client.get(EVENTS, params={"token": made["token"]}).status_code == 401


@clause("O-6")
def test_o06_a_key_with_fewer_scopes_loses_its_streams(served: Serving, file: Path) -> None:
    with opened_stream(served, "a") as stream:
        write(file, "a", scopes=("submit",))
        until_closed(stream)
    assert status(served, "a") == 403


@clause("O-16")
@pytest.mark.parametrize("content", ["", "{", '{"keys": [{"name": "a"}]}', '{"kexs": []}'])
def test_o16_a_wrong_file_changes_nothing(
    served: Serving, file: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        file.write_text(content)
        wait_until_sync(lambda: "keys not changed" in caplog.text, "the fault in the log")
    assert status(served, "a") == 200


@clause("O-16")
def test_o16_a_file_that_others_may_write_is_not_used(file: Path) -> None:
    write(file, "a")
    file.chmod(0o666)
    with pytest.raises(UnusableFile, match="others may write it"):
        Serving(GatewaySettings(keys_file=str(file)), test_feature())


@clause("O-16")
@needs_root
def test_o16_a_file_of_another_user_is_not_used(file: Path) -> None:
    write(file, "a")
    os.chown(file, 65534, 65534)
    with pytest.raises(UnusableFile, match="another user"):
        Serving(GatewaySettings(keys_file=str(file)), test_feature())


@clause("O-6")
def test_o06_without_a_key_in_the_file_nobody_is_admitted(file: Path) -> None:
    with Serving(GatewaySettings(keys_file=str(file)), test_feature()) as served:
        assert served.client.get(ME).status_code == 401
        write(file, "a")
        wait_for_status(served, "a", 200)


@clause("O-2", "O-6")
def test_o06_keys_are_created_listed_and_revoked_on_the_command_line(
    served: Serving, file: Path, tmp_path: Path
) -> None:
    env = {"JOBWIRE_GATEWAY_KEYS_FILE": str(file)}
    scopes = ("--scope", "submit", "--scope", "read", "--tenant", "shop")
    made = json.loads(jobwire("keys", "create", "ci", *scopes, cwd=tmp_path, env=env).stdout)
    header = {"authorization": f"Bearer {made['key']}"}
    wait_until_sync(
        lambda: served.client.get(ME, headers=header).status_code == 200, "the new key to hold"
    )
    assert served.client.get(ME, headers=header).json()["tenant"] == "shop"
    assert file.stat().st_mode & 0o777 == 0o600
    assert made["key"] not in file.read_text()

    again = jobwire("keys", "create", "ci", "--scope", "read", cwd=tmp_path, env=env)
    assert (again.returncode, "revoke it first" in again.stderr) == (5, True)
    listed = jobwire("keys", "list", cwd=tmp_path, env=env).stdout.splitlines()
    assert [json.loads(line)["name"] for line in listed] == ["a", "b", "ci"]
    assert jobwire("keys", "revoke", "ci", "no", cwd=tmp_path, env=env).returncode == 4
    assert jobwire("keys", "revoke", "ci", cwd=tmp_path, env=env).returncode == 0
    wait_until_sync(
        lambda: served.client.get(ME, headers=header).status_code == 401, "the key to be refused"
    )
    assert status(served, "a") == 200


@clause("O-2")
def test_o02_keys_need_a_file(tmp_path: Path) -> None:
    done = jobwire("keys", "list", cwd=tmp_path)
    assert (done.returncode, "gateway.keys_file is not set" in done.stderr) == (2, True)
    wrong = jobwire("keys", "create", "a b", "--scope", "read", "--file", "k.json", cwd=tmp_path)
    assert (wrong.returncode, "must be 1-64 letters" in wrong.stderr) == (2, True)
