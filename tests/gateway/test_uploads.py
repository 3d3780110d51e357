"""Large bodies: read as they arrive with flat memory, and refused so that the client sees it.

UPLOAD_BYTES is their size; `make chaos` runs these tests with 2 GB.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Final

import httpx
import pytest

from jobwire.gateway.settings import GatewaySettings
from tests.gateway.server import Serving, read_answer, status_of
from tests.gateway.upload_server import LATE_BYTES, REFUSED
from tests.gateway.upload_server import uploads as uploads_feature
from tests.support import clause, wait_until_sync
from tests.support.browser import Browser
from tests.support.program import Program

SIZE: Final = int(os.environ.get("UPLOAD_BYTES") or 64_000_000)
FLAT_BYTES: Final = 24 << 20
"""How much the server may grow over an upload: far below its size."""
BLOCK: Final = 1 << 20


class Uploads:
    """A running server, and a file to send; the file is sparse."""

    def __init__(self, program: Program, file: Path) -> None:
        self.program = program
        self.file = file
        self.port = int(program.wait_for_line("port ").split()[-1])
        self.url = f"http://127.0.0.1:{self.port}"

    def peak_bytes(self) -> int:
        """The largest resident memory of the server so far."""
        status = Path(f"/proc/{self.program.pid}/status").read_text(encoding="ascii")
        found = re.search(r"VmHWM:\s*(\d+) kB", status)
        assert found is not None
        return int(found[1]) << 10

    def put(self, path: str, *, chunked: bool = False) -> httpx.Response:
        """Send the file by httpx, with its length or in chunks."""
        with self.file.open("rb") as content:
            body = iter(lambda: content.read(BLOCK), b"") if chunked else content
            return httpx.put(f"{self.url}{path}", content=body, timeout=120, trust_env=False)

    def curl(self, path: str, *options: str) -> tuple[int, str]:
        """Send the file by curl: status and body of the response."""
        sent = ["-T", str(self.file), f"{self.url}{path}"]
        done = subprocess.run(
            ["curl", "-sS", "--noproxy", "*", "-m", "120", "-w", "\n%{http_code}", *options, *sent],
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        body, _, status = done.stdout.rpartition("\n")
        return int(status), body


@pytest.fixture(scope="module")
def uploads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Uploads]:
    file = tmp_path_factory.mktemp("uploads") / "large"
    with file.open("wb") as made:
        made.truncate(SIZE)
    with Program("-m", "tests.gateway.upload_server") as program:
        served = Uploads(program, file)
        # Code and buffers of the first request do not count as growth.
        wait_until_sync(lambda: httpx.get(f"{served.url}/livez", trust_env=False), "the server")
        yield served


def hash_of_zeros(size: int) -> str:
    digest = hashlib.sha256()
    block = bytes(BLOCK)
    for begin in range(0, size, BLOCK):
        digest.update(block[: min(BLOCK, size - begin)])
    return digest.hexdigest()


@clause("O-6", "O-9")
@pytest.mark.parametrize("chunked", [False, True], ids=["sized", "chunked"])
def test_o06_a_large_body_passes_with_flat_memory(uploads: Uploads, *, chunked: bool) -> None:
    before = uploads.peak_bytes()
    answer = uploads.put("/uploads/accepted", chunked=chunked)
    assert answer.json() == {"size": SIZE, "sha256": hash_of_zeros(SIZE)}
    assert uploads.peak_bytes() - before < FLAT_BYTES


@clause("O-6", "O-9")
def test_o06_a_route_that_does_not_read_pauses_its_client(uploads: Uploads) -> None:
    """Without back-pressure the server would store the whole body while the route waits."""
    before = uploads.peak_bytes()
    sent = 0

    def send() -> bytes:
        nonlocal sent
        with socket.create_connection(("127.0.0.1", uploads.port), timeout=120) as peer:
            peer.sendall(b"PUT /uploads/held/back HTTP/1.1\r\nHost: localhost\r\n")
            peer.sendall(b"Content-Length: %d\r\n\r\n" % SIZE)
            while sent < SIZE:
                sent += peer.send(bytes(min(BLOCK, SIZE - sent)))
            return read_answer(peer)

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(send)
        # Ends too early on a loaded machine at worst, which makes the test weaker and not red.
        stood, since_s = 0, time.monotonic()
        while sent < SIZE and time.monotonic() - since_s < 0.5:
            if sent != stood:
                stood, since_s = sent, time.monotonic()
            time.sleep(0.05)
        assert uploads.peak_bytes() - before < FLAT_BYTES
        httpx.post(f"{uploads.url}/release/back", trust_env=False)
        assert answer.result(120).endswith(b"%d" % SIZE)
    assert uploads.peak_bytes() - before < FLAT_BYTES


@clause("O-6", "O-9")
@pytest.mark.parametrize("expect", ["Expect: 100-continue", "Expect:"], ids=["expect", "at-once"])
@pytest.mark.parametrize(("path", "status"), REFUSED.items())
def test_o06_curl_sees_an_early_refusal(
    uploads: Uploads, path: str, status: int, expect: str
) -> None:
    got, body = uploads.curl(f"/uploads/{path}", "-H", expect)
    assert got == status
    assert '"request_id"' in body


@clause("O-6", "O-9")
@pytest.mark.parametrize("chunked", [False, True], ids=["sized", "chunked"])
def test_o06_httpx_sees_an_early_refusal(uploads: Uploads, *, chunked: bool) -> None:
    """httpx reads the response only when it has sent the body, or cannot send more."""
    before = uploads.peak_bytes()

    def put(path: str) -> httpx.Response:
        return uploads.put(f"/uploads/{path}", chunked=chunked)

    with ThreadPoolExecutor(len(REFUSED)) as pool:
        answers = pool.map(put, REFUSED)
    for answer, status in zip(answers, REFUSED.values(), strict=True):
        assert answer.status_code == status, answer.text
        assert answer.headers["connection"] == "close"
        assert answer.json()["request_id"]
    assert uploads.peak_bytes() - before < FLAT_BYTES


@clause("O-6", "O-9")
def test_o06_a_refusal_in_the_middle_of_a_body_is_seen(uploads: Uploads) -> None:
    assert SIZE > LATE_BYTES
    with ThreadPoolExecutor(2) as pool:
        by_httpx = pool.submit(uploads.put, "/uploads/late", chunked=True)
        by_curl = pool.submit(uploads.curl, "/uploads/late")
    assert by_httpx.result().status_code == 409
    assert by_curl.result()[0] == 409


@clause("O-6", "O-9")
def test_o06_a_browser_sees_an_early_refusal(uploads: Uploads, browser: Browser) -> None:
    # A browser reports a status of 400 and above on its console.
    with browser.page(may_complain=True) as page:
        page.open(f"{uploads.url}/page")
        document = page.call("DOM.getDocument")["root"]["nodeId"]
        field = page.call("DOM.querySelector", nodeId=document, selector="input")["nodeId"]
        page.call("DOM.setFileInputFiles", files=[str(uploads.file)], nodeId=field)
        upload = """async (path) => {
          const body = document.querySelector("input").files[0];
          const answer = await fetch(`/uploads/${path}`, { method: "PUT", body });
          return [answer.status, (await answer.json()).status, body.size];
        }"""
        seen = page.run(f"Promise.all({list(REFUSED)}.map({upload}))")
    assert seen == [[status, status, SIZE] for status in REFUSED.values()]


@clause("O-6")
def test_o06_a_small_body_that_was_refused_keeps_its_connection(uploads: Uploads) -> None:
    head = b"PUT /uploads/used HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", uploads.port), timeout=60) as peer:
        for _ in range(3):
            peer.sendall(head)
            answer = read_answer(peer)
            assert status_of(answer) == 409
            assert b"connection: close" not in answer
            peer.sendall(bytes(1000))


@pytest.fixture(scope="module")
def impatient() -> Iterator[Serving]:
    """The same routes, with a second for a body to arrive."""
    with Serving(GatewaySettings(body_timeout=timedelta(seconds=1)), uploads_feature()) as served:
        yield served


@clause("O-6")
def test_o06_an_upload_that_stalls_is_408_and_its_route_ends(impatient: Serving) -> None:
    impatient.client.post("/release/stalled")
    with impatient.open_socket() as peer:
        peer.sendall(
            b"PUT /uploads/held/stalled HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Length: 9000000\r\n\r\n" + bytes(100_000)
        )
        answer = read_answer(peer)
        assert status_of(answer) == 408
        assert b'"code":"request_timeout"' in answer
    wait_until_sync(lambda: impatient.client.get("/gone").json() == ["stalled"], "its end")


@clause("O-6")
def test_o06_a_refused_client_cannot_send_forever(impatient: Serving) -> None:
    """The client is disconnected although it never stops sending."""
    with impatient.open_socket() as peer:
        peer.sendall(
            b"PUT /uploads/used HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        assert status_of(read_answer(peer)) == 409

        def is_cut() -> bool:
            try:
                peer.sendall(b"1\r\nx\r\n")
            except ConnectionError:
                return True
            return False

        wait_until_sync(is_cut, "the connection to be cut")
