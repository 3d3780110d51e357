"""A model server for the pages: OpenAI's API over real HTTP, with one answer for every prompt.

What a real model answers is tested in tests/handlers/llm and by the README's own test.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WORDS = ("Hello", " from", " the", " model", ".")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer("application/json", json.dumps({"data": []}).encode())

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/embeddings"):
            rows = [{"index": n, "embedding": [1.0, 0.5]} for n in range(len(asked["input"]))]
            body = {"model": "tester", "data": rows, "usage": {"prompt_tokens": 1}}
            return self._answer("application/json", json.dumps(body).encode())
        last = len(WORDS) - 1
        lines = [_event(word, "stop" if n == last else None) for n, word in enumerate(WORDS)]
        return self._answer("text/event-stream", b"".join([*lines, b"data: [DONE]\n\n"]))

    def _answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


def _event(word: str, finish: str | None) -> bytes:
    choice = {"index": 0, "delta": {"content": word}, "finish_reason": finish}
    return b"data: " + json.dumps({"model": "tester", "choices": [choice]}).encode() + b"\n\n"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that went away


@contextlib.contextmanager
def model_server() -> Generator[str]:
    """The server's URL, for `OPENAI_BASE_URL`."""
    server = _Server(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=lambda: server.serve_forever(0.05), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)
