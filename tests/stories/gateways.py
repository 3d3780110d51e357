"""Gateways as processes, to be killed; and readers of events that lose their connection."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import Generator
from typing import Final

import httpx

from jobwire.local import free_port
from tests.support import Program
from tests.support.jobs_http import Seen, read_block

_LOST: Final = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)


class GatewayProgram:
    """`jobwire gateway` as a process; a restart uses the same port."""

    def __init__(self, valkey_url: str) -> None:
        self._valkey_url = valkey_url
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.program = self._start()

    def _start(self) -> Program:
        return Program(
            *("-m", "jobwire", "gateway", "--port", str(self.port)),
            env={"JOBWIRE_VALKEY_URL": self._valkey_url, "JOBWIRE_LOGGING_LEVEL": "warning"},
        )

    def wait_until_up(self) -> None:
        self.program.wait_for_line("gateway on http", timeout_s=60)

    def kill_and_start(self) -> None:
        """kill -9; then start another one on the same port."""
        self.program.close()
        self.program = self._start()
        self.wait_until_up()

    def post(self, body: str, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.post(
            f"{self.url}/v1/jobs",
            content=body,
            headers={"content-type": "application/json", **named},
            timeout=30,
            trust_env=False,
        )

    def close(self) -> None:
        self.program.close()


@contextlib.contextmanager
def gateway(valkey_url: str) -> Generator[GatewayProgram]:
    """A gateway that is up until the end of the block."""
    started = GatewayProgram(valkey_url)
    try:
        started.wait_until_up()
        yield started
    finally:
        started.close()


class Watcher:
    """One reader of one job's events, over any number of connections."""

    def __init__(self, port: int, job_id: str, *, pause_s: float = 0.0) -> None:
        self._port = port
        self.job_id = job_id
        self._pause_s = pause_s
        self._writer: asyncio.StreamWriter | None = None
        self.seen: list[Seen] = []
        self.connects = 0
        self.greeted = 0
        self.ended = False

    @property
    def last_id(self) -> str | None:
        return next((event.id for event in reversed(self.seen) if event.id), None)

    async def read_to_the_end(self, limit_s: float = 90) -> None:
        """Connect again, after the last event seen, until the terminal event has arrived."""
        trouble: Exception | None = None
        try:
            async with asyncio.timeout(limit_s):
                while not self.ended:
                    try:
                        await self._read_once()
                    except _LOST as error:
                        trouble = error
                    await asyncio.sleep(random.uniform(0, 0.05))
        except TimeoutError:
            raise AssertionError(
                f"no end of job {self.job_id} in {limit_s:g} s and {self.connects} connections; "
                f"seen {[event.name for event in self.seen]}, the last trouble was {trouble!r}"
            ) from None

    def cut(self) -> None:
        """Drop the connection and what is still unread."""
        if self._writer is not None:
            self._writer.transport.abort()

    async def _read_once(self) -> None:
        reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self.connects += 1
        last = f"Last-Event-ID: {self.last_id}\r\n" if self.last_id else ""
        head = f"GET /v1/jobs/{self.job_id}/events HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
        try:
            self._writer.write(f"{head}{last}\r\n".encode())
            answer = await reader.readuntil(b"\r\n\r\n")
            status = int(answer.split(b" ", 2)[1])
            if status != 200:
                raise ConnectionError(f"{status}")
            text = b""
            while chunk := await _chunk(reader):
                *blocks, text = (text + chunk).split(b"\n\n")
                for block in blocks:
                    self._take(block.decode())
                if self._pause_s:
                    await asyncio.sleep(self._pause_s)  # a slow reader
        finally:
            self._writer.close()

    def _take(self, block: str) -> None:
        event = read_block(block)
        if isinstance(event, str):
            return
        if event.name == "hello":
            self.greeted += 1
            return
        self.seen.append(event)
        if event.name in ("done", "error", "canceled"):
            self.ended = True


async def _chunk(reader: asyncio.StreamReader) -> bytes:
    """One chunk of a chunked response; empty at its end."""
    size = int(re.sub(rb"\s", b"", await reader.readuntil(b"\r\n")), 16)
    data = await reader.readexactly(size + 2)
    return data[:-2]
