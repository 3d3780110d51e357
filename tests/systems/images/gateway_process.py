"""`jobwire images gateway` as a process behind proxies, to be stopped and killed.

The API runs in the test process, on the same servers without proxies. The gateway's detector is
that of `plugins.py`: the left half of every photo is hidden, and `hold_dark` holds dark photos in
the step `detect`.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import psutil

from jobwire.local import LocalValkey, free_port
from jobwire.objects import BucketConfig
from jobwire.systems.images.scripts import SCRIPTS
from tests.cli.runner import clean_env
from tests.handlers.photo.images import Pixels, jpeg, vips
from tests.support import Plain, Program, Proxy, wait_until_sync
from tests.support.resp import Command
from tests.support.s3 import boto_client
from tests.support.s3_proxy import Forward, Reply, S3Proxy, Seen
from tests.systems.images.plugins import HOLD
from tests.systems.images.site import ImageSite, Json, results

PREFIX: Final = "{process}:"


def bright_photo() -> bytes:
    """White: its left half must not be published."""
    return jpeg(_photo(255))


def dark_photo() -> bytes:
    """Black, so that the detector can be held at it."""
    return jpeg(_photo(0))


def _photo(level: int) -> Pixels:
    return np.full((120, 160, 3), level, np.uint8)


def finishes(image_id: str) -> Any:
    """A condition for the proxy: the result of this image is published."""

    def fits(command: Command) -> bool:
        is_finish = command.name == "EVALSHA" and command.words[1] == SCRIPTS["finish"].sha
        return is_finish and any(image_id in word for word in command.words[3:6])

    return fits


class HeldWrite:
    """The write of one photo to the bucket: held before the bucket gets it, or before its
    answer."""

    def __init__(self, *, stored: bool) -> None:
        self._stored = stored
        self._gate = threading.Event()
        self._passes = False
        self.arrived = threading.Event()

    def __call__(self, forward: Forward) -> Reply | None:
        if self._stored:
            forward()
        self.arrived.set()
        self._gate.wait(60)
        return forward() if self._passes else None

    def let_pass(self) -> None:
        """Let it arrive."""
        self._passes = True
        self._gate.set()

    def drop(self) -> None:
        """End it without an answer."""
        self._gate.set()


class GatewayProcess:
    """`with GatewayProcess(valkey, bucket, folder) as gateway: gateway.site.upload(…)`."""

    def __init__(
        self, valkey: LocalValkey, bucket: BucketConfig, folder: Path, **settings: str
    ) -> None:
        self.bucket = bucket
        self.folder = folder
        self.proxy = Proxy(valkey.port)
        self.store = S3Proxy(bucket)
        self.port = free_port()
        self.writes: dict[str, HeldWrite] = {}
        self.site = ImageSite(
            valkey.url,
            bucket,
            folder,
            uploads=False,
            upload_url=f"http://127.0.0.1:{self.port}",
            key_prefix=PREFIX,
            name="tests-process-api",
        )
        self._valkey_url = valkey.url
        self._settings = settings
        self._program: Program | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.proxy)
            stack.enter_context(self.store)
            stack.enter_context(self.site)
            stack.callback(self._close)
            self.store.every(self._choose)
            self.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # ── the process ──────────────────────────────────────────────────────────────────────────────

    @property
    def program(self) -> Program:
        assert self._program is not None
        return self._program

    def start(self) -> None:
        """Start it, in the place of an earlier one, and wait until it is ready."""
        self._close()
        self.proxy.heal()
        self._program = self.second(self.port)
        self._program.wait_for_line("images gateway on", timeout_s=60)

    def second(self, port: int) -> Program:
        """Another one with the same settings and the same spool."""
        hidden = {name: "" for name in os.environ if name not in clean_env()}
        store = self.store.config
        env = {
            **hidden,
            "TMPDIR": str(self.folder),
            "JOBWIRE_DATA_DIR": str(self.folder / "gateway"),
            "JOBWIRE_VALKEY_URL": self.proxy.url(self._valkey_url),
            "JOBWIRE_OBJECTS_ENDPOINT": store.endpoint,
            "JOBWIRE_OBJECTS_BUCKET": store.bucket,
            "JOBWIRE_OBJECTS_ACCESS_KEY": store.access_key,
            "JOBWIRE_OBJECTS_SECRET_KEY": store.secret_key,
            "JOBWIRE_IMAGES_TOKEN_PUBLIC_KEY": str(self.folder / "images" / "token-public.pem"),
            "JOBWIRE_IMAGES_KEY_PREFIX": PREFIX,
            "JOBWIRE_IMAGES_PORT": str(port),
            "JOBWIRE_IMAGES_DETECT": "tests.systems.images.plugins:LeftHalf",
            "JOBWIRE_IMAGES_FILL": "grey",
            "JOBWIRE_IMAGES_WORKERS": "2",
            "JOBWIRE_GATEWAY_DRAIN": "30s",
            # Held writes do not time out before the test continues.
            "JOBWIRE_VALKEY_READ_TIMEOUT": "60s",
            "JOBWIRE_GATEWAY_BODY_TIMEOUT": "60s",
            **self._settings,
        }
        return Program("-m", "jobwire", "images", "gateway", env=env)

    def kill(self) -> None:
        """kill -9; held writes are dropped."""
        self.program.kill()
        self.drop_holds()

    def drop_holds(self) -> None:
        """End all holds but those of the proxy."""
        held, self.writes = self.writes, {}
        for write in held.values():
            write.drop()
        (self.folder / HOLD).unlink(missing_ok=True)

    def _close(self) -> None:
        self.drop_holds()
        if self._program is not None:
            self._program.close()
            self._program = None

    # ── holding an image at a step ───────────────────────────────────────────────────────────────

    def hold_write(self, image_id: str, *, stored: bool = False) -> HeldWrite:
        """Hold the write of a photo to the bucket, before it arrives or before its answer."""
        self.writes[image_id] = HeldWrite(stored=stored)
        return self.writes[image_id]

    def _choose(self, seen: Seen) -> HeldWrite | None:
        if seen.method != "PUT":
            return None
        held = self.writes
        return next((held[image_id] for image_id in held if image_id in seen.path), None)

    def hold_dark(self) -> None:
        """Hold dark photos in the step `detect`, until `release_dark`."""
        (self.folder / HOLD).touch()

    def release_dark(self) -> None:
        (self.folder / HOLD).unlink()

    def listens(self) -> bool:
        """Whether it accepts connections."""
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), timeout=30).close()
            return True
        return False

    # ── observations ─────────────────────────────────────────────────────────────────────────────

    @property
    def spool(self) -> Path:
        return self.folder / "gateway" / "images" / "spool"

    def spooled(self) -> set[str]:
        """The names of the spool's files, without its lock."""
        return {file.name for file in self.spool.iterdir()} - {"spool.lock"}

    def has_file(self, image: Json) -> bool:
        """Whether the spool has a file of this image."""
        return any(name.startswith(f"{image['image_id']}.") for name in self.spooled())

    def wait_until_empty(self) -> None:
        """Wait until the spool is empty."""
        wait_until_sync(lambda: not self.spooled(), "the spool to be empty")

    def memory(self) -> int:
        """The largest resident memory of the gateway and of its photo workers so far, in bytes."""
        pids = [self.program.pid]
        pids += [child.pid for child in psutil.Process(self.program.pid).children(recursive=True)]
        return sum(_peak_bytes(pid) for pid in pids)

    def check_published(self, plain: Plain, image_id: str) -> None:
        """The image is ready, with one result, and every version in the bucket is hidden."""
        assert self.site.ended(image_id)["status"] == "ready"
        assert [each["status"] for each in results(plain, image_id, PREFIX)] == ["processed"]
        versions = list(self.versions(image_id))
        assert versions
        for body in versions:
            check_hidden(body)

    def versions(self, image_id: str) -> Iterator[bytes]:
        """Every version of every object of an image."""
        s3, name = boto_client(self.bucket), self.bucket.bucket
        pages = s3.get_paginator("list_object_versions").paginate(Bucket=name)
        for page in pages:
            for each in page.get("Versions", []):
                if image_id in each.get("Key", ""):
                    stored = s3.get_object(
                        Bucket=name, Key=each.get("Key", ""), VersionId=each.get("VersionId", "")
                    )
                    yield stored["Body"].read()


def check_hidden(body: bytes) -> None:
    """A WebP whose left half is the grey of a hidden area."""
    assert body[8:12] == b"WEBP"
    pixels = vips.Image.new_from_buffer(body, "").numpy()
    left = pixels[20:100, 10:60, :3].astype(int)
    assert abs(left - 128).max() < 16, left.mean()


def _peak_bytes(pid: int) -> int:
    try:
        found = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text("ascii"))
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(found[1]) << 10 if found else 0
