"""A gateway on a real socket, in a thread of its own, with features made for tests."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence
from typing import Self

import httpx
import uvloop

from jobwire.gateway.app import Gateway
from jobwire.gateway.auth import hash_of
from jobwire.gateway.feature import Feature
from jobwire.gateway.health import Supervised
from jobwire.gateway.server import HttpServer
from jobwire.gateway.settings import GatewaySettings, KeySettings, ScopeName
from jobwire.gateway.sse_connections import SseConnections
from jobwire.local.listen import listen
from tests.support.threads import call_on_loop


def key(name: str, *scopes: ScopeName, tenant: str = "default") -> KeySettings:
    """A key for tests: `jw_` and its name."""
    return KeySettings(name=name, hash=hash_of(f"jw_{name}"), scopes=scopes, tenant=tenant)


def bearer(name: str) -> dict[str, str]:
    """The header of a key made by `key`."""
    return {"authorization": f"Bearer jw_{name}"}


def build(*features: Feature) -> Gateway:
    """A gateway with these features that is not run."""
    settings = GatewaySettings()
    return Gateway(settings, features, SseConnections(settings), version="0")


class Serving:
    """`with Serving(settings, feature) as served: served.client.get("/livez")`."""

    def __init__(
        self,
        settings: GatewaySettings | None = None,
        *features: Feature | TestFeature,
        supervised: Supervised | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        settings = settings or GatewaySettings()
        self.streams = SseConnections(settings)
        made = [
            feature if isinstance(feature, Feature) else feature.made(self.streams)
            for feature in features
        ]
        self.gateway = Gateway(
            settings, made, self.streams, version="0.0.test", supervised=supervised
        )
        self._listening = listen(host, 0)
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._ready = threading.Event()
        self.server = HttpServer(self.gateway, settings, self._ready.set)
        self.loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=uvloop.run, args=(self._serve(),), daemon=True)

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        await self.server.run_until_stopped(self._listening)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(30), "the gateway did not start"
        self.client = httpx.Client(base_url=self.url, timeout=30, trust_env=False, verify=False)
        return self

    def stop(self) -> None:
        """As SIGTERM does."""
        if self.loop is not None:
            call_on_loop(self.loop, self.server.stop)

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.stop()
        self._thread.join(30)
        assert not self._thread.is_alive(), "the gateway did not stop"

    def open_socket(self) -> socket.socket:
        """A raw connection; close it."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def raw(self, request: bytes) -> bytes:
        """Send raw bytes and read until the gateway closes or answers in full."""
        with self.open_socket() as peer:
            peer.sendall(request)
            return read_answer(peer)


class TestFeature:
    """A feature that needs the streams of its gateway."""

    __test__ = False

    def made(self, streams: SseConnections) -> Feature:
        raise NotImplementedError


def read_answer(peer: socket.socket) -> bytes:
    """One whole response with a Content-Length, or the bytes before the end of the connection."""
    got = b""
    while True:
        head, gap, body = got.partition(b"\r\n\r\n")
        if gap:
            lengths = [
                int(line.split(b":")[1])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length:")
            ]
            if lengths and len(body) >= lengths[0]:
                return got
        part = peer.recv(65536)
        if not part:
            return got
        got += part


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


Features = Sequence[Feature]
