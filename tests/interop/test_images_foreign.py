"""Programs written from the published image messages replace either side, mixed with ours."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from jobwire.job.errors import JobwireError
from jobwire.local import LocalValkey, free_port
from jobwire.objects import BucketConfig
from jobwire.systems.images.contract import ImageErrorCode
from jobwire.systems.images.tokens import new_key_pair
from jobwire.systems.images.upload_gateway import PhotoWorkers
from tests.e2e.endpoints import Endpoints
from tests.e2e.flows import Flow, check_events, small_photo
from tests.handlers.photo.images import with_segment
from tests.support import Fresh, Program, clause
from tests.support.s3 import make_bucket
from tests.support.s3_proxy import Forward, Mishap, Reply, S3Proxy, Seen
from tests.support.thirdparty import NODE, node_packages
from tests.systems.images.site import ImageSite

PROGRAMS: Final = Path(__file__).parent / "node"
_COMMENT: Final = 0xFE
_MARK: Final = re.compile(rb"fail:([A-Z_]+)")


def failing_photo(code: ImageErrorCode) -> bytes:
    """A photo at which both gateways of these tests fail with a code."""
    return with_segment(small_photo(), _COMMENT, f"fail:{code}".encode())


class Pair:
    """The servers, token keys and addresses that both sides share."""

    def __init__(self, valkey: LocalValkey, bucket: BucketConfig, folder: Path) -> None:
        self.valkey = valkey
        self.bucket = bucket
        self.folder = folder
        self.port = free_port()
        private, public = new_key_pair()
        (folder / "private.pem").write_bytes(private)
        (folder / "public.pem").write_bytes(public)

    @contextmanager
    def node(self, program: str, gateway_url: str = "http://127.0.0.1:9") -> Generator[None]:
        """One of the foreign programs."""
        env = {
            "NODE_PATH": str(node_packages() / "node_modules"),
            "VALKEY_URL": self.valkey.url.replace("valkey:", "redis:"),
            "S3_ENDPOINT": self.bucket.endpoint,
            "S3_BUCKET": self.bucket.bucket,
            "S3_ACCESS_KEY": self.bucket.access_key,
            "S3_SECRET_KEY": self.bucket.secret_key,
            "TOKEN_PUBLIC_KEY": str(self.folder / "public.pem"),
            "TOKEN_PRIVATE_KEY": str(self.folder / "private.pem"),
            "PORT": str(self.port),
            "GATEWAY_URL": gateway_url,
        }
        with Program(command=[NODE, PROGRAMS / program], env=env) as started:
            started.wait_for_line("ready")
            yield

    @contextmanager
    def used(self, api_url: str) -> Generator[Flow]:
        """The pair in use, by the address of its API."""
        endpoints = Endpoints(api_url=api_url, valkey_url=self.valkey.url, bucket=self.bucket)
        with endpoints.client() as http, endpoints.server() as server:
            yield Flow(endpoints, http, server)


@pytest.fixture
def pair(valkey: LocalValkey, seaweedfs: BucketConfig, tmp_path: Path, fresh: Fresh) -> Pair:
    node_packages()
    bucket = replace(seaweedfs, bucket=fresh("foreign").lower())
    make_bucket(bucket)
    return Pair(valkey, bucket, tmp_path)


def check_pair(flow: Flow) -> None:
    """Success, duplicate, and every failure code."""
    image_id, events = flow.watched(small_photo())
    check_events(events, "ready")
    flow.check_ready(image_id)
    image = flow.announce()
    assert flow.put_twice(image, small_photo()) == [202, 409]
    flow.check_ready(image["image_id"])
    assert flow.put({**image, "token": "no.such.token"}, small_photo()).status_code == 401
    assert flow.put({**image, "token": flow.announce()["token"]}, b"").status_code == 403
    for code in ImageErrorCode:
        image_id, events = flow.watched(failing_photo(code))
        check_events(events, "failed")
        flow.check_failed(image_id, code)


@clause("I-1", "I-3", "I-6", "I-13")
def test_i03_our_api_works_with_a_foreign_gateway(pair: Pair) -> None:
    site = ImageSite(
        pair.valkey.url,
        pair.bucket,
        pair.folder,
        uploads=False,
        upload_url=f"http://127.0.0.1:{pair.port}",
        token_private_key=str(pair.folder / "private.pem"),
    )
    with pair.node("images_gateway.js"), site, pair.used(site.url) as flow:
        check_pair(flow)


@clause("I-1", "I-3", "I-6", "I-7")
def test_i03_a_foreign_api_works_with_our_gateway(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = PhotoWorkers.process

    async def process_or_fail(self: PhotoWorkers, source: Path, target: Path, **more: Any) -> Any:
        found = _MARK.search(_bytes_of(source))
        if found and found[1] != b"UPLOAD_FAILED":
            raise JobwireError("send another photo", code=found[1].decode())
        if found:
            refused.append(source.name.partition(".")[0])
        return await process(self, source, target, **more)

    refused: list[str] = []

    def refuse(seen: Seen) -> Mishap | None:
        is_refused = seen.method == "PUT" and any(name in seen.path for name in refused)
        return access_denied if is_refused else None

    monkeypatch.setattr(PhotoWorkers, "process", process_or_fail)
    with S3Proxy(pair.bucket) as store:
        store.every(refuse)
        site = ImageSite(
            pair.valkey.url,
            store.config,
            pair.folder,
            api=False,
            token_public_key=str(pair.folder / "public.pem"),
        )
        api_url = f"http://127.0.0.1:{pair.port}"
        with site, pair.node("images_api.js", site.url), pair.used(api_url) as flow:
            check_pair(flow)


def access_denied(_forward: Forward) -> Reply | None:
    """The keys miss a permission."""
    return Reply(403, body=b"<Error><Code>AccessDenied</Code></Error>")


def _bytes_of(file: Path) -> bytes:
    return file.read_bytes()
