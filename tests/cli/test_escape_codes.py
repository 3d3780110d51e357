"""O-2: escape codes in responses of a gateway never reach the terminal."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.runner import clean_env
from tests.cli.terminal import Terminal
from tests.support import clause

TITLE: Final = "\x1b]0;owned\x07"
EIGHT_BITS: Final = "\x9b2J\u202e\u2028"
HOSTILE: Final = f"[/nope][red]x[/red] {TITLE}{EIGHT_BITS}"
JOB: Final[dict[str, Any]] = {
    "job_id": "j-" + HOSTILE,
    "task": HOSTILE,
    "status": "running",
    "created_ts": 1,
    "updated_ts": 1,
    "progress": {"percent": 5, "message": HOSTILE},
    "error": None,
    "payload": {},
    "result": None,
    "ttl_s": 60,
}
COUNTS: Final = {"submitted": 1, "done": 1, "error": 1, "canceled": 0}
MINUTE: Final[dict[str, Any]] = {
    **COUNTS,
    "start_ts": 0,
    "retried": 0,
    "duration_ms": {},
    "latency_ms": {},
}
NOW: Final = {"waiting": 1, "delayed": 0, "running": 1, "oldest_waiting_ms": 1}
ROW: Final[dict[str, Any]] = {
    **COUNTS,
    **NOW,
    "system": HOSTILE,
    "name": HOSTILE,
    "wire": HOSTILE,
    "workers": 0,
    "slots": 1,
    "heartbeat_age_ms": 1,
    "ended_by_minute": [],
    "failed_by_minute": [],
    "duration_ms": {},
}
WORKER: Final[dict[str, Any]] = {
    "name": HOSTILE,
    "system": HOSTILE,
    "wire": HOSTILE,
    "ours": True,
    "handlers": [HOSTILE],
    "serves": [{"wire": HOSTILE, "queue": HOSTILE, "tasks": [HOSTILE]}],
    "heartbeat_age_ms": 5,
    "slots": 1,
    "running": [{"job_id": HOSTILE, "task": HOSTILE, "since_ts": 1}],
    "lacks": [{"part": HOSTILE, "wrong": HOSTILE, "what_to_do": HOSTILE}],
}
ANSWERS: Final[dict[str, Any]] = {
    "/v1/overview": {
        "systems": [ROW],
        "unavailable": [{"system": HOSTILE, "detail": HOSTILE}],
    },
    "/v1/stats": {"now": NOW, "hour": MINUTE, "minutes": [MINUTE]},
    "/v1/workers": {"workers": [WORKER]},
    "/v1/jobs": {"jobs": [JOB], "scanned": 1, "total": 1, "cursor": f"1-{HOSTILE}"},
    "/readyz": {
        "version": HOSTILE,
        "parts": [{"name": HOSTILE, "state": HOSTILE, "note": HOSTILE, "what_to_do": HOSTILE}],
    },
}


class HostileGateway(BaseHTTPRequestHandler):
    """Responds like a gateway, with an attacker's text in every member."""

    def do_GET(self) -> None:
        self._answer(ANSWERS.get(self.path.partition("?")[0], JOB))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"] or 0))
        self._answer(JOB)

    def _answer(self, content: object) -> None:
        body = json.dumps(content, ensure_ascii=False).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's signature
        pass


@pytest.fixture(scope="module")
def env() -> Iterator[dict[str, str]]:
    with ThreadingHTTPServer(("127.0.0.1", 0), HostileGateway) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {**clean_env(), "JOBWIRE_URL": f"http://127.0.0.1:{server.server_port}"}
        server.shutdown()


def assert_no_escape_codes(screen: str) -> None:
    assert TITLE not in screen
    assert "\x1b]" not in screen
    assert not re.search("[\x80-\x9f\u202e\u2028]", screen)


@clause("O-2")
def test_o02_top_prints_markup_and_escape_codes_as_text(
    env: dict[str, str], tmp_path: Path
) -> None:
    """A progress message `[/nope]` once ended `top` with a traceback."""
    with Terminal("top", cwd=tmp_path, env=env, columns=400) as terminal:
        terminal.until("5 % [/nope][red]x[/red]")
        terminal.interrupt()
        assert terminal.wait() == 0
    assert_no_escape_codes(terminal.screen)


@clause("O-2")
@pytest.mark.parametrize(
    "arguments",
    [
        ("doctor",),
        ("doctor", "--json"),
        ("list",),
        ("list", "--json"),
        ("job", "x"),
        ("submit", "chat", "hello"),
        ("retry", "x"),
    ],
    ids=" ".join,
)
def test_o02_no_command_prints_escape_codes(
    env: dict[str, str], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    with Terminal(*arguments, cwd=tmp_path, env=env, columns=400) as terminal:
        terminal.wait()
    assert "nope" in terminal.screen
    assert_no_escape_codes(terminal.screen)
