"""Processes of ours that are killed: one parent imports everything and forks a child per job.

The parent holds no connection and no thread, so a child equals a freshly started process, without
the second that imports take. The test kills the child by its pid, from outside.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self, cast

import msgspec

from jobwire.systems.predictions.intent import Photo
from tests.systems.predictions.site import Addresses, build_flow

ROOT = Path(__file__).parents[3]


class Gate:
    """Kills the child after its n-th call was executed, before the answer."""

    def __init__(self) -> None:
        self.kill_after: int | None = None
        self.pid: int | None = None
        self.calls: list[str] = []
        self._lock = threading.Lock()
        self._known = threading.Event()

    def arm(self, kill_after: int | None) -> None:
        self.kill_after, self.pid, self.calls = kill_after, None, []
        self._known.clear()

    def started(self, pid: int) -> None:
        self.pid = pid
        self._known.set()

    def disarm(self) -> None:
        self.kill_after = None

    def passed(self, name: str) -> bool:
        """Count a call; True if the child was killed at it."""
        with self._lock:
            if self.kill_after is None:
                return False
            self.calls.append(name)
            if len(self.calls) != self.kill_after:
                return False
            assert self._known.wait(10)
            assert self.pid is not None
            os.kill(self.pid, signal.SIGKILL)
            return True


class Processes:
    """Runs jobs in child processes, one at a time."""

    def __init__(self) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "tests.systems.predictions.process"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def submit(self, addresses: Addresses, photo: Photo, gate: Gate) -> int:
        given = {"photo": msgspec.to_builtins(photo)}
        return self._run(addresses, given, gate)

    def webhook(
        self, addresses: Addresses, tid: str, headers: Mapping[str, str], body: bytes, gate: Gate
    ) -> int:
        given = {"tid": tid, "headers": dict(headers), "body": b64encode(body).decode()}
        return self._run(addresses, given, gate)

    def _run(self, addresses: Addresses, given: Mapping[str, Any], gate: Gate) -> int:
        """Run a job to its end; minus the signal that killed it."""
        assert self._parent.stdin
        assert self._parent.stdout
        print(
            json.dumps({"addresses": asdict(addresses), **given}),
            file=self._parent.stdin,
            flush=True,
        )
        gate.started(int(self._parent.stdout.readline()))
        code = int(self._parent.stdout.readline())
        gate.disarm()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._parent.stdin
        assert self._parent.stdout
        self._parent.stdin.close()
        self._parent.wait(30)
        self._parent.stdout.close()


def _child(job: Mapping[str, Any]) -> None:
    import asyncio

    from jobwire.systems.predictions.webhook import handle

    flow = build_flow(Addresses(**job["addresses"]))
    if "photo" in job:
        asyncio.run(flow.submit(msgspec.convert(job["photo"], Photo)))
        return
    headers = cast("Mapping[str, str]", job["headers"])
    body = b64decode(job["body"])
    answer = asyncio.run(handle(flow, "replicate", job["tid"], headers, {}, body))
    assert answer.status == 200, answer


def main() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                _child(json.loads(line))
                code = 0
            finally:
                os._exit(code)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
