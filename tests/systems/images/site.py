"""A whole image site for tests: API and upload gateway in a thread, on real servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Generator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Self, cast
from urllib.parse import urlsplit

import httpx
import uvloop

from jobwire.gateway.app import Gateway
from jobwire.gateway.connection import HttpConnection
from jobwire.gateway.server import HttpServer
from jobwire.gateway.settings import GatewaySettings, KeySettings
from jobwire.gateway.sse_connections import SseConnections
from jobwire.objects import Bucket, BucketConfig
from jobwire.settings import Settings
from jobwire.systems.backends import Backends
from jobwire.systems.images.feature import images_api
from jobwire.systems.images.settings import ImagesSettings
from jobwire.systems.images.system import SYSTEM
from jobwire.systems.images.upload_gateway import image_uploads
from jobwire.systems.system import GatewayContext, bucket_name
from jobwire.valkey import Connection
from jobwire.valkey.settings import ValkeySettings
from tests.handlers.photo.images import jpeg, photograph, quarters
from tests.support import Plain, wait_until_sync
from tests.support.patience import PATIENCE
from tests.support.s3 import boto_client
from tests.support.threads import call_on_loop

Json = dict[str, Any]


@cache
def portrait() -> bytes:
    """A JPEG with a face."""
    return jpeg(photograph())


@cache
def plain_photo() -> bytes:
    """A small JPEG without a face."""
    return jpeg(quarters())


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream."""

    name: str
    id: str
    data: Json


class ImageSite:
    """`with ImageSite(valkey.url, bucket, folder) as site: site.announce()`."""

    def __init__(
        self,
        valkey_url: str,
        bucket: BucketConfig,
        folder: Path,
        *,
        database: str = "",
        keys: Sequence[KeySettings] = (),
        gateway: GatewaySettings | None = None,
        api: bool = True,
        uploads: bool = True,
        upload_url: str = "",
        name: str = "tests-images",
        **images: Any,
    ) -> None:
        self.bucket = bucket
        self.folder = folder
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        given: dict[str, Any] = {
            "detect": ("none",),
            "workers": 1,
            "database_url": database or f"sqlite:///{folder}/records.sqlite",
            "upload_url": upload_url or self.url,
            **images,
        }
        self.settings = Settings(
            data_dir=folder,
            valkey=ValkeySettings(url=valkey_url, read_timeout=PATIENCE),
            gateway=replace(gateway or GatewaySettings(), keys=tuple(keys)),
            images=ImagesSettings(**given),
        )
        self._api, self._uploads = api, uploads
        self._name = name
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: HttpServer | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None

    @property
    def spool(self) -> Path:
        return self.folder / "images" / "spool"

    @property
    def connections(self) -> list[HttpConnection]:
        """Those of its clients."""
        assert self._server is not None
        return list(self._server.state.connections)

    def _run(self) -> None:
        try:
            uvloop.run(self._serve())
        except BaseException as error:
            self._failure = error
            raise

    async def _serve(self) -> None:
        settings = self.settings
        streams = SseConnections(settings.gateway)
        async with AsyncExitStack() as stack:
            opened = Connection.open(settings.valkey.config(), name=self._name)
            connection = await stack.enter_async_context(opened)
            buckets = {bucket_name(SYSTEM, settings): Bucket(self.bucket)}
            backends = Backends(settings, connection, buckets).of(SYSTEM)
            context = GatewayContext(settings, backends, streams)
            features: list[Any] = []
            if self._uploads:
                features.append(await stack.enter_async_context(image_uploads(context)))
            if self._api:
                features.append(await stack.enter_async_context(images_api(context)))
            gateway = Gateway(settings.gateway, features, streams, version="0.0.test")
            self._server = HttpServer(gateway, settings.gateway, self._ready.set)
            self._loop = asyncio.get_running_loop()
            await self._server.run_until_stopped(self._listening)

    def __enter__(self) -> Self:
        self._thread.start()
        self.client = httpx.Client(base_url=self.url, timeout=60, trust_env=False)
        wait_until_sync(lambda: self._failure or self._ready.is_set(), "the site")
        assert self._failure is None, self._failure
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        if self._loop is not None and self._server is not None:
            call_on_loop(self._loop, self._server.stop)
        self._thread.join(60)
        assert not self._thread.is_alive(), "the site did not stop"

    # ── shortcuts ────────────────────────────────────────────────────────────────────────────────

    def announce(self, content_type: str = "image/jpeg", **more: Any) -> Json:
        """Announce an upload that must be allowed."""
        answer = self.client.post("/v1/images", json={"content_type": content_type, **more})
        assert answer.status_code == 201, answer.text
        return answer.json()

    def put(self, image: Json, body: bytes, **headers: str) -> httpx.Response:
        """Upload a photo to the URL of its announcement."""
        return put(self.client, image, body, **headers)

    def upload(self, body: bytes, content_type: str = "image/jpeg") -> str:
        """Announce and send a photo that must be accepted."""
        image = self.announce(content_type)
        answer = self.put(image, body, **{"content-type": content_type})
        assert answer.status_code == 202, answer.text
        return image["image_id"]

    def get(self, image_id: str) -> Json:
        answer = self.client.get(f"/v1/images/{image_id}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def ended(self, image_id: str) -> Json:
        """The image, once its record has ended."""

        def found() -> Json | None:
            image = self.get(image_id)
            return image if image["status"] != "processing" else None

        return cast(Json, wait_until_sync(found, f"the end of {image_id}"))

    @contextlib.contextmanager
    def events(self, image_id: str, last_id: str = "") -> Generator[Generator[Event]]:
        """Open the event stream of an image."""
        headers = {"last-event-id": last_id} if last_id else {}
        path = f"/v1/images/{image_id}/events"
        with self.client.stream("GET", path, headers=headers) as answer:
            assert answer.status_code == 200, answer.read()
            yield read_events(answer)


def put(client: httpx.Client, image: Json, body: bytes, **headers: str) -> httpx.Response:
    """Upload a photo to the URL of its announcement."""
    given = {"content-type": "image/jpeg", "authorization": f"Bearer {image['token']}", **headers}
    return client.put(image["upload_url"], content=body, headers=given)


def raw_put(image: Json, length: int, body: bytes) -> socket.socket:
    """Announce a length, send a body, keep the connection."""
    address = urlsplit(str(image["upload_url"]))
    assert address.hostname
    assert address.port
    opened = socket.create_connection((address.hostname, address.port), timeout=30)
    head = (
        f"PUT {address.path} HTTP/1.1\r\nhost: {address.netloc}\r\n"
        f"content-type: image/jpeg\r\ncontent-length: {length}\r\n"
        f"authorization: Bearer {image['token']}\r\n\r\n"
    )
    opened.sendall(head.encode() + body)
    return opened


def results(plain: Plain, image_id: str, prefix: str = "") -> list[dict[str, str]]:
    """The results of an image in the stream."""
    entries = cast("list[tuple[str, dict[str, str]]]", plain.xrange(f"{prefix}image:result"))
    return [fields for _, fields in entries if fields["image_id"] == image_id]


def versions(site: ImageSite, image_id: str) -> list[str]:
    """Everything that the bucket has of an image, in all versions."""
    listed = boto_client(site.bucket).list_object_versions(
        Bucket=site.bucket.bucket, Prefix=f"images/{image_id}"
    )
    found = [*listed.get("Versions", []), *listed.get("DeleteMarkers", [])]
    return [each.get("Key", "") for each in found]


def read_events(answer: httpx.Response) -> Generator[Event]:
    """The events of a stream; its comments are left out."""
    fields: dict[str, str] = {}
    for line in answer.iter_lines():
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            yield Event(fields["event"], fields.get("id", ""), json.loads(fields["data"]))
            fields = {}
