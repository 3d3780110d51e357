"""O-15: a gateway stays within the memory that the manifests give it, whatever clients hold.

Regression: its own budgets were larger than the limit of its pod: 256 MiB of bodies and 128 of
responses, where both have 256 together.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec
import pytest
import yaml

from jobwire.gateway.memory import MemoryBudgets
from jobwire.gateway.settings import GatewaySettings
from jobwire.local import LocalValkey, free_port
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.schema_documents import task_definitions
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Config, Connection
from jobwire.valkey.blocking_socket import BlockingSocket
from tests.gateway.server import key
from tests.support import Program, clause
from tests.support.machine import needs_open_files
from tests.support.program import ROOT

JOBS: Final = "/v1/jobs"
MIB: Final = 1 << 20
KEYS: Final = tuple(f"k{number}" for number in range(8))
STREAMS: Final = 1_500
OF_EVENT: Final = 30_000
BODIES: Final = 120
LARGE: Final = 300
CONNECTIONS: Final = 5_000


def limit_of_the_manifest() -> int:
    """MiB of the gateway's pod; compose gives it the same."""
    documents = yaml.safe_load_all((ROOT / "deploy/kubernetes/base/gateway.yaml").read_text())
    pod = next(each for each in documents if each["kind"] == "Deployment")["spec"]["template"]
    found = re.fullmatch(r"(\d+)Mi", pod["spec"]["containers"][0]["resources"]["limits"]["memory"])
    assert found is not None
    return int(found[1])


LIMIT: Final = limit_of_the_manifest()


class Attacked:
    """A gateway with keys of several tenants, and clients that hold what they can."""

    def __init__(self, valkey: LocalValkey) -> None:
        self.port = free_port()
        self.valkey_url = valkey.url
        self._opened = contextlib.ExitStack()
        keys = [key(name, "submit", "read", tenant=name) for name in KEYS]
        self.valkey = self._opened.enter_context(
            contextlib.closing(BlockingSocket(Config.from_url(valkey.url), "attacks", timeout_s=30))
        )
        self.program = Program(
            *("-m", "jobwire", "gateway", "--port", str(self.port)),
            env={
                "JOBWIRE_VALKEY_URL": valkey.url,
                "JOBWIRE_GATEWAY_MAX_MEMORY_MB": str(LIMIT),
                "JOBWIRE_GATEWAY_KEYS": msgspec.json.encode(keys).decode(),
                "JOBWIRE_GATEWAY_BODY_TIMEOUT": "10m",
                "JOBWIRE_GATEWAY_HEADER_TIMEOUT": "10m",
                "JOBWIRE_GATEWAY_SLOW_CLIENT": "10m",
                "JOBWIRE_LOGGING_LEVEL": "warning",
            },
            cold=True,
        )
        self._opened.callback(self.program.close)
        self.program.wait_for_line("gateway on http", timeout_s=60)

    def close(self) -> None:
        self._opened.close()

    def open(self, window: int = 0) -> socket.socket:
        peer = self._opened.enter_context(socket.socket())
        if window:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        peer.settimeout(60)
        peer.connect(("127.0.0.1", self.port))
        return peer

    def request(self, number: int, line: str, body: bytes = b"", *more: str) -> bytes:
        name = KEYS[number % len(KEYS)]
        lines = [line, "Host: localhost", f"Authorization: Bearer jw_{name}", *more]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode() + body

    def answered(self, number: int, line: str, body: bytes = b"") -> bytes:
        with contextlib.closing(self.open()) as peer:
            peer.sendall(self.request(number, line, body, "Connection: close"))
            return b"".join(iter(lambda: peer.recv(65536), b""))

    def status(self, name: str) -> int:
        """A line of the kernel about the process, in KiB."""
        text = Path(f"/proc/{self.program.pid}/status").read_text()
        found = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
        assert found is not None
        return int(found[1])


@pytest.fixture
def attacked(valkey: LocalValkey) -> Iterator[Attacked]:
    with contextlib.closing(Attacked(valkey)) as started:
        yield started


def hold_bodies(attacked: Attacked) -> None:
    """Batches of which the last byte is missing, of every key."""
    for number in range(BODIES):
        peer = attacked.open()
        head = attacked.request(
            number, "POST /v1/jobs/batch HTTP/1.1", b"", "Content-Length: 8000000"
        )
        with contextlib.suppress(OSError):  # refused before its end
            peer.sendall(head + b"x" * 7_999_999)


def hold_responses(attacked: Attacked) -> None:
    for number in range(LARGE):
        attacked.open(4096).sendall(attacked.request(number, "GET /openapi.json HTTP/1.1"))


def hold_streams(attacked: Attacked) -> None:
    """Event streams that are not read, of jobs with large events."""
    job = b'{"task":"chat","payload":{"prompt":"hi"}}'
    jobs: list[tuple[int, str]] = []
    for number in range(50):
        answer = attacked.answered(number, "POST /v1/jobs HTTP/1.1", job)
        job_id = json.loads(answer.partition(b"\r\n\r\n")[2])["job_id"]
        jobs.append((number, job_id))
        for _ in range(5):
            fields = ("type", "log", "ts", "1", "step", "x", "data", json.dumps("x" * OF_EVENT))
            attacked.valkey.call("XADD", f"job:{job_id}:events", "*", *fields)
    for number in range(STREAMS):
        of_key, job_id = jobs[number % len(jobs)]
        path = f"GET /v1/jobs/{job_id}/events HTTP/1.1"
        peer = attacked.open(4096)
        peer.sendall(attacked.request(of_key, path))
        assert peer.recv(12) == b"HTTP/1.1 200"


def refuse_payloads(attacked: Attacked) -> None:
    """Payloads whose faults are costly to describe, several at once and in batches."""

    async def register() -> None:
        async with Connection.open(attacked.valkey_url) as connection:
            await StreamsEngine(connection, StreamsSettings()).register(task_definitions(), 1)

    asyncio.run(register())
    parts = ",".join(["1"] * 95_000)
    job = f'{{"task":"chat","payload":{{"messages":[{{"role":"user","content":[{parts}]}}]}}}}'
    batch = f'{{"jobs":[{",".join([job] * 30)}]}}'
    with ThreadPoolExecutor(8) as clients:
        posts = [
            clients.submit(attacked.answered, number, f"POST {path} HTTP/1.1", body.encode())
            for number, (path, body) in enumerate([(JOBS, job), (f"{JOBS}/batch", batch)] * 8)
        ]
        answers = [post.result() for post in posts]
    assert any(b"content[0]: value is not of type" in answer for answer in answers[::2])


def hold_connections(attacked: Attacked) -> None:
    for _ in range(CONNECTIONS):
        attacked.open()


@clause("O-15")
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from /proc")
@needs_open_files(16_384)
def test_o15_a_gateway_stays_within_the_memory_of_the_manifests(attacked: Attacked) -> None:
    before = attacked.status("VmRSS")
    for attack in (hold_streams, hold_responses, refuse_payloads, hold_bodies, hold_connections):
        attack(attacked)
        peak = attacked.status("VmHWM")
        print(f"{attack.__name__}: {before >> 10} MiB at first, then at most {peak >> 10}")
        assert peak < LIMIT << 10, f"{attack.__name__}: {peak >> 10} of {LIMIT} MiB"
    assert b'"alive"' in attacked.answered(0, "GET /livez HTTP/1.1")


@clause("O-15")
@pytest.mark.parametrize("memory_mb", [64, 256, 1024, 65_536])
def test_o15_the_budgets_of_a_gateway_are_a_part_of_its_memory(memory_mb: int) -> None:
    found = MemoryBudgets.of(GatewaySettings(max_memory_mb=memory_mb))
    assert found.bodies + found.unread + found.streams <= memory_mb * MIB // 4
    assert found.bodies <= 256 * MIB
    assert found.connections * (64 << 10) <= memory_mb * MIB // 2
    assert MemoryBudgets.of(GatewaySettings(body_budget_mb=7)).bodies == 7 * MIB
    assert MemoryBudgets.of(GatewaySettings()).bodies <= 256 * MIB
