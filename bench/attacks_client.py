"""One attacker: `python -m bench.attacks_client NAME PORT VALKEY_URL SECONDS`.

Uses raw sockets until the time is over. Prints the number of operations as JSON.
"""

import asyncio
import collections
import contextlib
import itertools
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Final, cast

from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.schema_documents import task_definitions
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Config, Connection
from jobwire.valkey.blocking_socket import BlockingSocket

_HOST: Final = b"Host: localhost\r\n"
_LIVEZ: Final = b"GET /livez HTTP/1.1\r\n" + _HOST + b"\r\n"
_CHUNKED: Final = b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Endless: "
_MEMBERS: Final = ",".join(f'"{number:x}":1' for number in range(20_000))


class Attacker:
    """The attacks and their common parts."""

    def __init__(self, port: int, valkey_url: str, seconds: float) -> None:
        self._port = port
        self._valkey_url = valkey_url
        self._until_s = time.monotonic() + seconds
        self.done = 0
        """Requests, connections or KiB, by attack."""

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), timeout=10)

    @property
    def running(self) -> bool:
        return time.monotonic() < self._until_s

    def hold(self, sockets: list[socket.socket]) -> None:
        """Keep connections open until the time is over."""
        while self.running:
            time.sleep(0.05)
        for sock in sockets:
            sock.close()

    def _repeat(self, begin: bytes, endless: bytes) -> None:
        while self.running:
            with contextlib.suppress(OSError), self.connect() as peer:
                peer.sendall(begin)
                while self.running:
                    peer.sendall(endless)
                    self.done += len(endless) >> 10

    # The attacks

    def pipelined(self) -> None:
        self._repeat(b"", _LIVEZ * 1000)

    def trailer(self) -> None:
        head = b"POST /v1/jobs HTTP/1.1\r\n" + _HOST
        self._repeat(head + _CHUNKED, b"x" * 65536)

    def duplicate(self) -> None:
        self._post(f'{{"task":"chat","payload":{{{_MEMBERS},"4e1f":2}}}}')

    def batch(self) -> None:
        job = '{"task":"chat","payload":{"a":[' + ",".join(["[]"] * 2000) + "]}}"
        self._post(f'{{"jobs":[{",".join([job] * 1000)}]}}', "/v1/jobs/batch")

    def members(self) -> None:
        """A million unknown members."""
        members = ",".join([f'"{number}":1' for number in range(800_000)])
        self._post(f'{{"jobs":[],{members[:8_000_000].rpartition(",")[0]}}}', "/v1/jobs/batch")

    def bodies(self) -> None:
        """Three hundred bodies of which the last byte is missing."""
        head = b"POST /v1/jobs/batch HTTP/1.1\r\n%bContent-Length: 4000001\r\n\r\n" % _HOST
        peers: list[socket.socket] = []
        for _ in range(300):
            if not self.running:
                break
            peers.append(self.connect())
            with contextlib.suppress(OSError):  # refused before its end
                peers[-1].sendall(head + b"x" * 4_000_000)
            self.done += 1
        self.hold(peers)

    def schema(self) -> None:
        """Payloads that the schema of a worker refuses at each of a thousand places."""
        self._register()
        turns = ",".join(['{"role":"user","content":[{"type":"text","text":1}]}'] * 1000)
        self._post(f'{{"task":"chat","payload":{{"messages":[{turns}]}}}}')

    def schemas(self) -> None:
        """The same in batches."""
        self._register()
        turns = ",".join(['{"role":"user","content":[{"type":"text","text":1}]}'] * 1000)
        job = f'{{"task":"chat","payload":{{"messages":[{turns}]}}}}'
        self._post(f'{{"jobs":[{",".join([job] * 100)}]}}', "/v1/jobs/batch")

    def pages(self) -> None:
        """Pages of jobs whose errors are as large as an event may be."""
        error = json.dumps({"code": "x", "message": "m", "partial": ["p" * 60_000]})

        async def store() -> None:
            async with Connection.open(self._valkey_url) as connection:
                for number in range(200):
                    fields = ("job_id", f"large-{number}", "task", "chat", "payload", "{}")
                    times = ("created_ts", number, "updated_ts", number, "ttl_s", 600)
                    key = f"job:large-{number}"
                    await connection.call(
                        "HSET", key, "status", "error", *fields, *times, "error", error
                    )
                    await connection.call("EXPIRE", key, 600)
                    await connection.call("ZADD", "jobs:index", number, f"large-{number}")

        asyncio.run(store())
        self._request(b"GET /v1/jobs?limit=200 HTTP/1.1\r\n%b\r\n" % _HOST)

    def users(self) -> None:
        """Connections of another user of the machine; of the own one, if that is not root."""
        self.connect().close()  # imports what the other user may not read
        if os.geteuid() == 0:
            os.setuid(65534)
        while self.running:
            self._request(b"GET /v1/jobs HTTP/1.1\r\nConnection: close\r\n%b\r\n" % _HOST, 1)

    def _request(self, request: bytes, most: float = float("inf")) -> None:
        """Requests one after another on one connection."""
        asked = 0
        with contextlib.suppress(OSError), self.connect() as peer, peer.makefile("rb") as answers:
            while self.running and asked < most:
                peer.sendall(request)
                length = 0
                while (line := answers.readline().strip()) != b"":
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.partition(b":")[2])
                answers.read(length)
                asked, self.done = asked + 1, self.done + 1

    def _register(self) -> None:
        """A worker with the six tasks and their schemas."""

        async def register() -> None:
            async with Connection.open(self._valkey_url) as connection:
                engine = StreamsEngine(connection, StreamsSettings())
                await engine.register(task_definitions(), 1)

        asyncio.run(register())

    def _post(self, body: str, path: str = "/v1/jobs") -> None:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        while self.running:
            with contextlib.suppress(OSError), self.connect() as peer:
                peer.sendall(head.encode() + body.encode())
                peer.recv(65536)
                self.done += 1

    def connections(self) -> None:
        """Connections on which nothing is sent, more than the gateway may have files."""
        peers: collections.deque[socket.socket] = collections.deque(maxlen=15_000)
        while self.running:
            with contextlib.suppress(OSError):
                peers.append(self.connect())
                self.done += 1
        self.hold([*peers])

    def stray(self) -> None:
        peers = [self.connect() for _ in range(500)]
        for peer in peers:
            peer.sendall(_LIVEZ)
            peer.recv(65536)
            peer.sendall(b"\r\n")
            self.done += 1
        self.hold(peers)

    def silent(self) -> None:
        head = b"POST /v1/jobs/batch HTTP/1.1\r\n%bContent-Length: 8000000\r\n\r\n" % _HOST
        peers: list[socket.socket] = []
        for _ in range(20):
            peers.append(self.connect())
            peers[-1].sendall(head + b"x" * 7_900_000)
            self.done += 1
        self.hold(peers)

    def _job(self) -> str:
        body = b'{"task":"chat","payload":{"prompt":"hi"},"ttl_s":600}'
        head = b"POST /v1/jobs HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (_HOST, len(body))
        with self.connect() as peer:
            peer.sendall(head + body)
            answer = peer.recv(65536)
        return cast(str, json.loads(answer.partition(b"\r\n\r\n")[2])["job_id"])

    def _watch(self, job_id: str) -> socket.socket:
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(("127.0.0.1", self._port))
        peer.sendall(b"GET /v1/jobs/%b/events HTTP/1.1\r\n%b\r\n" % (job_id.encode(), _HOST))
        return peer

    def unread(self) -> None:
        """Event streams that are not read, of one job with a growing number of events."""
        job_id = self._job()
        peers = [self._watch(job_id) for _ in range(300)]
        self.done = len(peers)
        valkey = BlockingSocket(Config.from_url(self._valkey_url), "bench-attack", timeout_s=10)
        for number in itertools.count():
            if not self.running:
                break
            fields = ("type", "log", "ts", "1", "step", "x", "data", json.dumps("x" * 1000))
            valkey.call("XADD", f"job:{job_id}:events", "MAXLEN", "~", 2000, "*", *fields)
            if number % 50 == 0:
                time.sleep(0.01)
        valkey.close()
        self.hold(peers)

    def document(self) -> None:
        """A large response that is not read, by clients without a key."""
        peers: list[socket.socket] = []
        while self.running and len(peers) < 3000:
            peer = socket.socket()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.connect(("127.0.0.1", self._port))
            peer.sendall(b"GET /openapi.json HTTP/1.1\r\n%b\r\n" % _HOST)
            peers.append(peer)
            self.done += 1
        self.hold(peers)

    def arrivals(self) -> None:
        """Event streams of one job, opened one after the other."""
        job_id = self._job()
        peers: list[socket.socket] = []
        while self.running and len(peers) < 5000:
            peers.append(self._watch(job_id))
            self.done += 1
            if not self.done % 100:
                peers[-1].recv(1)  # wait for the gateway, so that its backlog does not overflow
        self.hold(peers)


ATTACKS: Final[dict[str, Callable[[Attacker], None]]] = {
    "pipelined": Attacker.pipelined,
    "trailer": Attacker.trailer,
    "duplicate": Attacker.duplicate,
    "batch": Attacker.batch,
    "members": Attacker.members,
    "bodies": Attacker.bodies,
    "schema": Attacker.schema,
    "schemas": Attacker.schemas,
    "pages": Attacker.pages,
    "users": Attacker.users,
    "connections": Attacker.connections,
    "stray": Attacker.stray,
    "silent": Attacker.silent,
    "unread": Attacker.unread,
    "document": Attacker.document,
    "arrivals": Attacker.arrivals,
}


if __name__ == "__main__":
    name, port, valkey_url, seconds = sys.argv[1:]
    attacker = Attacker(int(port), valkey_url, float(seconds))
    ATTACKS[name](attacker)
    print(json.dumps({"done": attacker.done}))
