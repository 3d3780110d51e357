"""O-2, B-12: `jobwire queue` and `jobwire look` on a terminal, and the choice of the wire."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import pty
import re
import socket
import sys
import threading
from collections.abc import Generator, Iterator
from typing import Any

import psutil
import pytest

from jobwire import Client
from jobwire.cli.exits import Exit
from jobwire.cli.main import main
from jobwire.local import LocalValkey
from jobwire.systems.queues.queue import QueueProducer
from jobwire.systems.queues.settings import QueuesSettings
from jobwire.valkey import Connection
from tests.support import clause, wait_until_sync
from tests.systems.queues.served import SERVED, ServedQueues, worker_connected

HOSTILE = "\x1b[31mred\x07"


@pytest.fixture(scope="module")
def served_queues(valkey: LocalValkey) -> Iterator[ServedQueues]:
    """Both wires; each has a queue `default`."""
    queues = QueuesSettings(names=("default", "idle"))
    with ServedQueues(valkey.url, queues, worker=True, jobs=True) as running:
        worker_connected(valkey)
        yield running


@pytest.fixture
def served(
    served_queues: ServedQueues, valkey: LocalValkey, monkeypatch: pytest.MonkeyPatch
) -> ServedQueues:
    assert valkey.alive
    monkeypatch.setenv("JOBWIRE_URL", served_queues.url)
    return served_queues


def on_terminal(*arguments: str, code: int = 0, typed: str = "") -> list[str]:
    """Run a command in this process on a pseudo terminal; its lines."""
    ours, theirs = pty.openpty()
    chunks: list[bytes] = []

    def read() -> None:
        try:
            while chunk := os.read(ours, 65536):
                chunks.append(chunk)
        except OSError:  # the other side is closed
            return

    os.write(ours, typed.encode())
    reader = threading.Thread(target=read)
    reader.start()
    before = sys.stdin, sys.stdout, sys.stderr
    with (
        io.TextIOWrapper(os.fdopen(os.dup(theirs), "wb", buffering=0), write_through=True) as out,
        io.TextIOWrapper(os.fdopen(theirs, "rb", buffering=0)) as typed_text,
    ):
        # Questions are on stderr.
        sys.stdin, sys.stdout, sys.stderr = typed_text, out, out if typed else before[2]
        try:
            done = main(arguments)
        finally:
            sys.stdin, sys.stdout, sys.stderr = before
    reader.join(30)
    os.close(ours)
    text = b"".join(chunks).decode()
    assert done == code, text
    return [line.rstrip() for line in text.splitlines()]


def cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line)


# Text


@clause("O-2", "B-12")
def test_o2_ls_and_show_print_a_table(served: ServedQueues) -> None:
    served.add("idle")
    served.add("idle", delay=60_000)
    lines = on_terminal("queue", "ls", "--wire", "bullmq")
    heading = ["queue", "waiting", "active", "delayed", "completed", "failed", "oldest", "workers"]
    assert cells(lines[0]) == heading
    (row,) = [cells(line) for line in lines if line.startswith("idle ")]
    assert row[:6] == ["idle", "1", "0", "1", "0", "0"]
    assert row[-1] == "0"
    shown = dict(cells(line) for line in on_terminal("queue", "show", "idle"))
    assert shown["queue"] == "idle"
    assert shown["paused"] == "no"
    assert (shown["waiting"], shown["delayed"], shown["schedulers"]) == ("1", "1", "0")


@clause("O-2", "B-12")
def test_o2_add_jobs_job_and_watch_print_lines(served: ServedQueues) -> None:
    opts = '{"jobId": "mine"}'
    added = on_terminal("queue", "add", SERVED, "steps", '{"n": 1}', "--opts", opts)
    assert added == ["mine: added"]
    watched = on_terminal("queue", "watch", SERVED, "mine")
    assert [line.split()[0] for line in watched][-1] == "completed"
    assert any("message=half of it" in line for line in watched)
    again = on_terminal("queue", "add", SERVED, "steps", "--opts", opts)
    assert again == ["mine: duplicate"]
    lines = on_terminal("queue", "jobs", SERVED, "--state", "completed")
    assert cells(lines[0]) == ["id", "name", "state", "attempts", "reason"]
    assert cells(lines[1]) == ["mine", "steps", "completed", "1"]
    job = on_terminal("queue", "job", SERVED, "mine")
    assert any('"returnvalue": "done"' in line for line in job)
    assert job[-1] == "  half of it"
    failed = served.add(SERVED, "fail")
    assert "failed" in [
        line.split()[0] for line in on_terminal("queue", "watch", SERVED, failed, code=1)
    ]
    (_, row) = on_terminal("queue", "jobs", SERVED, "--state", "failed")
    assert "no disk" in row
    for _ in range(2):
        served.add("idle")
    assert len(on_terminal("queue", "jobs", "idle", "--limit", "1")) >= 2


@clause("O-2", "B-19")
@pytest.mark.parametrize(
    ("opts", "expected"),
    [
        ('{"attemts":3}', "unknown field `attemts`; did you mean `attempts`?"),
        ('{"attempts":"many"}', "/opts/attempts: Expected `int"),
        ('{"backoff":{"type":"fixed","dely":1}}', "unknown field `dely`; did you mean `delay`?"),
    ],
)
def test_o2_a_wrong_member_of_a_body_of_two_types_is_named(
    served: ServedQueues, capsys: pytest.CaptureFixture[str], opts: str, expected: str
) -> None:
    """The fault is that of the type that was meant."""
    assert served.url
    assert main(["queue", "add", SERVED, "echo", "{}", "--opts", opts]) == Exit.REFUSED
    (line,) = capsys.readouterr().err.splitlines()
    assert expected in line


@clause("O-2", "B-12")
def test_o2_retry_promote_pause_and_resume_print_the_new_state(served: ServedQueues) -> None:
    failed = served.add(SERVED, "fail")
    served.queue_job(SERVED, failed, wait_s=30)
    served.client.post(f"/v1/queues/{SERVED}/pause")
    assert on_terminal("queue", "retry", SERVED, failed) == [f"{failed}: waiting"]
    assert on_terminal("queue", "retry", SERVED, "--all") == [f"{SERVED}: 0 jobs waiting again"]
    delayed = [served.add("idle", delay=60_000) for _ in range(3)]
    assert on_terminal("queue", "promote", "idle", delayed[0]) == [f"{delayed[0]}: waiting"]
    assert on_terminal("queue", "promote", "idle", "--all") == ["idle: 2 jobs waiting again"]
    assert on_terminal("queue", "pause", "idle") == ["idle: paused"]
    listed = on_terminal("queue", "ls", "--wire", "bullmq")
    assert [cells(line)[-1] for line in listed if line.startswith("idle ")] == ["paused"]
    assert on_terminal("queue", "resume", "idle") == ["idle: not paused"]


@clause("O-2", "B-12")
def test_o2_drain_clean_and_obliterate_ask_with_the_count(served: ServedQueues) -> None:
    for _ in range(2):
        served.add("idle")
    served.add("idle", delay=60_000)
    refused = on_terminal("queue", "drain", "idle", code=Exit.INTERRUPTED, typed="n\n")
    assert "Delete the 2 waiting and prioritized jobs of idle? [y/N]" in " ".join(refused)
    assert len(served.client.get("/v1/queues/idle/jobs").json()["jobs"]) == 2
    # The typed text is echoed before the question; its answer follows on the same line.
    drained = on_terminal("queue", "drain", "idle", typed="y\n")
    assert drained[-1].endswith("idle: 2 jobs deleted")
    cleaned = on_terminal("queue", "clean", "idle", "--state", "delayed", typed="y\n")
    assert "Delete up to 1 delayed jobs of idle?" in " ".join(cleaned)
    assert cleaned[-1].endswith("idle: 1 jobs deleted")
    served.add("idle")
    obliterated = on_terminal("queue", "obliterate", "idle", typed="y\n")
    assert "Delete the queue idle with 1 jobs and its schedulers?" in " ".join(obliterated)
    assert obliterated[-1].endswith("idle: 1 jobs deleted")


@clause("O-2", "B-12")
@pytest.mark.parametrize(
    ("wire", "verb", "member"), [("bullmq", "drain", "count"), ("streams", "purge", "canceled")]
)
def test_o2_a_question_is_not_part_of_the_result(
    served: ServedQueues,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wire: str,
    verb: str,
    member: str,
) -> None:
    """stdout is a pipe, and the answer is typed on a terminal."""
    typed = io.StringIO("y\n")
    monkeypatch.setattr(typed, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", typed)
    assert main(["queue", verb, "idle" if wire == "bullmq" else "default"]) == Exit.OK
    result, question = capsys.readouterr()
    assert member in json.loads(result)
    assert "[y/N]" in question


@clause("O-2", "B-12")
def test_o2_flows_are_added_and_shown_as_a_tree(served: ServedQueues) -> None:
    ids = ("root", "done", "below")
    flow = {
        "name": "join",
        "opts": {"jobId": ids[0]},
        "children": [
            {"name": "echo", "queueName": SERVED, "opts": {"jobId": ids[1]}},
            {"name": HOSTILE[5:8], "opts": {"jobId": ids[2]}},
        ],
    }
    added = on_terminal("queue", "add-flow", "idle", json.dumps(flow))
    assert added == ["root: added with 2 children"]
    wait_until_sync(lambda: served.queue_job(SERVED, "done")["state"] == "completed")
    lines = on_terminal("queue", "flow", "idle", "root")
    assert lines[0] == "join (idle root) waiting-children"
    assert sorted(lines[1:]) == ["  echo (work done) completed", "  red (idle below) waiting"]
    narrow = on_terminal("queue", "flow", "idle", "root", "--width", "1")
    assert narrow[-1] == "  … 1 more"
    assert on_terminal("queue", "flow", "idle", "below")[0] == f"parent: {lines[0]}"
    assert main(["queue", "add-flow", "idle", "[]"]) == Exit.USAGE
    assert main(["queue", "flow", "idle", "nope"]) == Exit.NOT_FOUND


@clause("O-2", "B-12")
def test_o2_schedulers_are_set_listed_and_removed(
    served: ServedQueues, capsys: pytest.CaptureFixture[str]
) -> None:
    cron = ("--cron", "0 3 1 1 *", "--tz", "Europe/Berlin", "--opts", '{"attempts": 2}')
    (line,) = on_terminal("queue", "schedule", "idle", "yearly", "report", '{"n": 1}', *cron)
    assert line.startswith("yearly: the next job is due in ")
    every = ("--every-ms", "3600000", "--limit", "5")
    on_terminal("queue", "schedule", "idle", "hourly", "report", *every)
    heading, first, second = map(cells, on_terminal("queue", "schedulers", "idle"))
    assert heading == ["id", "name", "schedule", "next run", "made"]
    assert first[:3] == ["hourly", "report", "every 1 h"]
    assert second[:3] == ["yearly", "report", "0 3 1 1 * Europe/Berlin"]
    assert second[3].startswith("in ")
    assert main(["queue", "schedulers", "idle", "--json", "--limit", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == "hourly"
    assert on_terminal("queue", "unschedule", "idle", "yearly") == ["yearly: removed"]
    assert main(["queue", "unschedule", "idle", "yearly"]) == Exit.REFUSED
    assert main(["queue", "schedule", "idle", "s", "a"]) == Exit.USAGE
    assert main(["queue", "schedule", "idle", "s", "a", "--cron", "nope"]) == Exit.REFUSED


@contextlib.contextmanager
def hostile_server(*answers: bytes) -> Generator[str]:
    """A server that answers its first commands with these bytes, and then sends zeros."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with contextlib.suppress(OSError):
                peer, _ = listening.accept()
                with peer:
                    for each in answers:
                        peer.recv(65536)
                        peer.sendall(each)
                    for _ in range(1000):
                        peer.sendall(bytes(1 << 20))

        server = threading.Thread(target=answer)
        server.start()
        yield f"redis://127.0.0.1:{listening.getsockname()[1]}"
    server.join(30)
    assert not server.is_alive(), "the connection was not closed"


HELLO = b"%3\r\n$2\r\nid\r\n:1\r\n$7\r\nversion\r\n$5\r\n9.0.0\r\n$4\r\nrole\r\n$6\r\nmaster\r\n"


@clause("O-2", "O-15")
@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([b"-ERR \x1b]0;owned\x07 " + b"x" * 5000 + b"\r\n"], "owned"),
        ([HELLO, b"$1000000000\r\n"], "16,777,216 bytes"),
        ([b"$1000000000\r\n"], "16,777,216 bytes"),
    ],
)
def test_o15_look_withstands_a_hostile_server(
    answers: list[bytes], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = psutil.Process().memory_info().rss
    with hostile_server(*answers) as url:
        on_terminal("look", url, code=Exit.UNREACHABLE)
    text = capsys.readouterr().err
    assert expected in text
    assert "\x1b" not in text
    assert len(text) < 1000
    assert psutil.Process().memory_info().rss - before < 100 << 20


async def _add_jobs(url: str) -> None:
    async with Connection.open(url) as connection:
        queue = QueueProducer(connection, "team")
        await queue.submit("render")
        await queue.pause()
        await connection.call("HSET", "bull:team:odd", "name", HOSTILE, "data", "{}")
        await connection.call("LPUSH", "bull:team:wait", "odd")


@clause("O-2", "B-12")
def test_o2_look_prints_tables(valkey: LocalValkey, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(_add_jobs(valkey.url))
    heading, row = map(cells, on_terminal("look", valkey.url))
    assert heading[:3] == ["queue", "waiting", "prioritized"]
    assert (row[0], row[1], row[-1]) == ("team", "2", "paused")
    lines = on_terminal("look", valkey.url, "team")
    assert cells(lines[0]) == ["id", "name", "state", "attempts", "reason"]
    assert cells(lines[1])[:3] == ["1", "render", "waiting"]
    assert "\x1b" not in lines[2]
    assert "red" in lines[2]
    assert on_terminal("look", valkey.url, "--prefix", "none") == []
    assert (
        capsys.readouterr().err
        == "No queue was found. If the queues have another prefix, give it with --prefix.\n"
    )


# The choice of the wire


@clause("O-2", "B-12")
def test_o2_a_queue_is_found_by_its_name_unless_both_wires_have_it(
    served: ServedQueues, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client(served.url) as client:

        def paused() -> tuple[bool, bool]:
            (streams,) = [each.paused for each in client.queues() if each.name == "default"]
            return streams, client.queue("default").status().paused

        for verb in ("pause", "resume"):
            assert main(["queue", verb, "default"]) == Exit.USAGE
            assert "--wire streams|bullmq" in capsys.readouterr().err
        assert paused() == (False, False), "nothing is changed"
        assert main(["queue", "pause", "default", "--wire", "bullmq"]) == 0
        assert paused() == (False, True)
        assert main(["queue", "pause", "default", "--wire", "streams"]) == 0
        assert main(["queue", "resume", "default", "--wire", "bullmq"]) == 0
        assert paused() == (True, False)
        assert main(["queue", "resume", "default", "--wire", "streams"]) == 0
        # A name that only one wire has.
        assert main(["queue", "pause", "idle"]) == 0
        assert client.queue("idle").status().paused is True
        assert main(["queue", "resume", "idle"]) == 0
        assert client.queue("idle").status().paused is False
        # A name that no wire has.
        capsys.readouterr()
        assert main(["queue", "pause", "nowhere"]) == Exit.NOT_FOUND
        assert "queue_not_found" in capsys.readouterr().err
    assert main(["queue", "ls"]) == 0
    listed: list[dict[str, Any]] = [
        json.loads(line) for line in capsys.readouterr().out.splitlines()
    ]
    assert [each["name"] for each in listed].count("default") == 2, "both wires are listed"
