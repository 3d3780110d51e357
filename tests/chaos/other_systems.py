"""Load of queues and images during failovers: jobs and photos one after the other, to their end.

A failover may lose what was accepted (G-26): a job that is unknown then is counted. A photo is
never lost, since its bytes are in the spool of the gateway: it must be published.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

import httpx

from jobwire.local import LocalS3
from jobwire.objects import BucketConfig
from tests.chaos.run import Survival
from tests.stories.all_systems import Json, Site
from tests.support.sentinel import Trio
from tests.systems.images.site import plain_photo, put

_END_S: Final = 60.0
"""How long a job or a photo may take to end, with failovers meanwhile."""
_PAUSE_S: Final = 0.2


class OtherSystems:
    """`with OtherSystems(folder, trio).under_load() as load: …`, then `load.survived`."""

    def __init__(self, folder: Path, trio: Trio) -> None:
        self._folder = folder
        self._trio = trio
        self._over = threading.Event()
        self._accepted: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()
        self.unfinished: list[str] = []

    @property
    def survived(self) -> list[Survival]:
        return [
            Survival(what, self._accepted[what], self._lost[what])
            for what in ("jobs of a BullMQ queue", "photos")
        ]

    @contextlib.contextmanager
    def under_load(self) -> Generator[OtherSystems]:
        server = LocalS3(self._folder / "s3", bucket="photos").start()
        try:
            bucket = BucketConfig(
                endpoint=server.endpoint,
                bucket="photos",
                access_key=server.access_key,
                secret_key=server.secret_key,
            )
            site = Site(self._trio.url, bucket, self._folder / "site")
            with site.running():
                threads = [
                    threading.Thread(target=self._repeat, args=(each, site))
                    for each in (self._queue, self._photo)
                ]
                for thread in threads:
                    thread.start()
                try:
                    yield self
                finally:
                    self._over.set()
                    for thread in threads:
                        thread.join()
        finally:
            server.kill()
            server.stop()

    def _repeat(self, once: Callable[[Site], None], site: Site) -> None:
        while not self._over.wait(_PAUSE_S):
            once(site)

    def _queue(self, site: Site) -> None:
        body = {"name": "echo", "data": {"x": 1}}
        answer = _asked(site, "POST", "/v1/queues/mail/jobs", body)
        if answer is None or answer.status_code not in (201, 202):
            return  # nothing was promised
        what = "jobs of a BullMQ queue"
        self._accepted[what] += 1
        (row,) = answer.json()["jobs"]
        path = f"/v1/queues/mail/jobs/{row['id']}"
        self._wait_end(site, what, path, lambda seen: seen["state"] == "completed")

    def _photo(self, site: Site) -> None:
        image = _asked(site, "POST", "/v1/images", {"content_type": "image/jpeg"})
        if image is None or image.status_code != 201:
            return
        try:
            sent = put(site.client, image.json(), plain_photo())
        except httpx.HTTPError:
            return
        if sent.status_code != 202:
            return
        self._accepted["photos"] += 1
        path = f"/v1/images/{image.json()['image_id']}"
        self._wait_end(site, "photos", path, lambda seen: seen["status"] == "ready")

    def _wait_end(
        self, site: Site, what: str, path: str, has_ended: Callable[[Json], bool]
    ) -> None:
        deadline_s = time.monotonic() + _END_S
        while time.monotonic() < deadline_s:
            answer = _asked(site, "GET", path)
            if answer is not None and answer.status_code == 404:
                self._lost[what] += 1
                return
            if answer is not None and answer.status_code == 200 and has_ended(answer.json()):
                return
            time.sleep(_PAUSE_S)
        self.unfinished.append(f"{path} has not ended within {_END_S:g} s")


def _asked(site: Site, method: str, path: str, body: Json | None = None) -> httpx.Response | None:
    try:
        return site.client.request(method, path, json=body)
    except httpx.HTTPError:
        return None
