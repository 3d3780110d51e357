"""Differential tests: the official package and ours perform the same operations, each in its own
database.

`lab.step(op, …)` does one verb on both sides at the same pinned time, and fails where the answers
or any key differ.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final, Literal, Self
from unittest import mock

from jobwire.local import LocalValkey
from jobwire.valkey import Connection
from tests.interop.bullmq_jobwire import Ours, Refused
from tests.interop.bullmq_state import State, differences, dump
from tests.support.servers import plain_from_url
from tests.support.thirdparty import NODE, node_packages, python_packages

OURS: Final = 1
THEIRS: Final = 2
START_MS: Final = 1_800_000_000_000
LOCK_MS: Final = 3_000_000
"""Longer than any run: locks expire when a test removes them."""

ZONES: Final = ("UTC", "Asia/Kathmandu", "America/New_York")
"""Schedulers without `tz` are due in the zone of the process."""

Version = Literal[6, 5, "py"]
"""Which official package: npm 6, npm 5 or PyPI."""

_HERE: Final = Path(__file__).parent
_QUEUE: Final = "q"


class PeerFailed(Exception):
    """The official package refused."""

    def __init__(self, message: str, code: int | None) -> None:
        super().__init__(message)
        self.code = code


class Peer:
    """A program with an official package in it; one call at a time."""

    def __init__(self, command: list[str | Path], **env: str) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **env},
        )
        assert self._line() == "ready"

    def do(self, call: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(call) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._line())
        if "error" in answer:
            raise PeerFailed(answer["error"], answer["code"])
        return answer["value"]

    def kill(self) -> None:
        """kill -9; `close` follows."""
        self._process.kill()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the rest of a call to a killed program
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.kill()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the peer's program ended"
        return line.strip()


def node_peer(url: str) -> Peer:
    return Peer([NODE, _HERE / "node" / "bullmq_peer.js", node_packages(), _plain(url)])


def python_peer(url: str) -> Peer:
    program = _HERE / "python" / "bullmq_peer.py"
    return Peer([sys.executable, program, _plain(url)], PYTHONPATH=str(python_packages()))


def _plain(url: str) -> str:
    return url.replace("valkey:", "redis:")


class Lab:
    """Both sides, for one test worker; `reset` before each example."""

    def __init__(self, server: LocalValkey) -> None:
        self._runner = asyncio.Runner()
        self._url = server.admin_url
        self._peers: dict[tuple[Version, str], Peer] = {}
        self._connection = self._runner.run(self._connected())
        self.ours = plain_from_url(self._at(OURS))
        self.theirs = plain_from_url(self._at(THEIRS))
        self.reset()

    def reset(self, *, extras: bool = True, version: Version = 6, zone: str = ZONES[0]) -> Self:
        """Two empty databases, and both sides in one time zone."""
        self.zone = zone
        self.extras = extras
        self.version = version
        self.now = START_MS
        self._steps: list[str] = []
        self._side = Ours(self._connection, extras=extras)
        self.ours.flushdb()
        self.theirs.flushdb()
        return self

    def step(self, op: str, *, queue: str = _QUEUE, advance_ms: int = 0, **more: Any) -> Any:
        """Perform the operation on both sides; return their common answer. A refusal is answered as
        {"code": …}."""
        self.now += advance_ms
        call = {"op": op, "queue": queue, "now": self.now, "version": self.version, **more}
        # A pause depends on who has opened the queue.
        opened = f"bullmq:{5 if self.version == 5 else 6}.0.0"
        self.both("HSETNX", f"bull:{queue}:meta", "version", opened)
        theirs = self.official(call, THEIRS)
        ours = self.do_ours(call)
        self._steps.append(f"{op} {queue} {json.dumps(more)} at +{self.now - START_MS} ms")
        self.check()
        assert ours == theirs, f"ours answered {ours}, theirs {theirs}:\n{self._story()}"
        return ours

    def do_ours(self, call: dict[str, Any]) -> Any:
        """On our side only."""
        try:
            with mock.patch.dict(os.environ, TZ=self.zone):
                return self._runner.run(self._do(call))
        except Refused as refused:
            return {"code": refused.code}

    def on_ours(self, op: str, *, queue: str = _QUEUE, **more: Any) -> Any:
        """The official package in our database: a fleet of both."""
        call = {"op": op, "queue": queue, "now": self.now, "version": self.version, **more}
        return self.official(call, OURS)

    def both(self, *words: str | int) -> None:
        """A raw command in both databases: time that passes, or a write of another program."""
        for side in (self.ours, self.theirs):
            side.call(*words)

    def check(self) -> None:
        found = differences(*self.states())
        assert not found, "\n".join([*found, self._story()])

    def _story(self) -> str:
        return "\n".join(["steps, the last one first:", *reversed(self._steps)])

    def states(self) -> tuple[State, State]:
        return (
            dump(self.ours, without_extras=self.extras),
            dump(self.theirs, without_extras=self.extras),
        )

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
        self._runner.run(self._connection.close())
        self._runner.close()
        self.ours.close()
        self.theirs.close()

    def _peer(self) -> Peer:
        kind: tuple[Version, str] = ("py" if self.version == "py" else 6, self.zone)
        if kind not in self._peers:
            with mock.patch.dict(os.environ, TZ=self.zone):
                self._peers[kind] = (python_peer if kind[0] == "py" else node_peer)(self._url)
        return self._peers[kind]

    def official(self, call: dict[str, Any], db: int) -> Any:
        """The official package in one of the databases."""
        try:
            return self._peer().do({**call, "db": db})
        except PeerFailed as refused:
            if refused.code is None:
                raise
            return {"code": refused.code}

    async def _do(self, call: dict[str, Any]) -> Any:
        return await self._side.do(call)

    async def _connected(self) -> Connection:
        return await Connection.open(self._at(OURS), name="lab")

    def _at(self, db: int) -> str:
        return self._url.rpartition("/")[0] + f"/{db}"


@contextlib.contextmanager
def laboratory(folder: Path) -> Generator[Lab]:
    """A server of its own: the keys of this wire stay, and the Node program keeps its sockets."""
    with LocalValkey(folder, admin=True) as server:
        lab = Lab(server)
        try:
            yield lab
        finally:
            lab.close()
