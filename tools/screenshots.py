"""`python -m tools.screenshots [FOLDER]`: takes the pictures of the page in docs/img.

Starts a Valkey, a bucket, a model, a gateway and a worker of their own, submits jobs, sends photos,
and opens each screen in Chromium: light, dark, and as wide as a phone. Needs Chromium.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import shutil
import tempfile
import time
from base64 import b64decode
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

from redis import Redis

from jobwire import Client
from jobwire.client import Job
from jobwire.systems.jobs.contract import DURATION, Counter, Status, StreamsKeys
from tests.fleet.runner import Fleet
from tests.support import Program
from tests.support.browser import PHONE, PROGRAMS, Browser, Page
from tests.support.devtools import DevTools
from tests.support.wait import wait_until_sync
from tools.screenshot_media import Media, media, pictures_loaded, upload
from tools.screenshot_queues import fill_queues, shoot_queues
from tools.screenshot_tour import shoot_tour

APP: Final = "tools.screenshot_app:app"
DESKTOP: Final = (1280, 860)
HOLD_S: Final = 120


@contextlib.contextmanager
def site(folder: Path) -> Generator[tuple[Fleet, Program, Client, Media]]:
    """A gateway of all systems without a worker, and a client."""
    folder.mkdir()
    with Fleet(folder) as fleet, media(folder / "media", fleet.url) as surroundings:
        gateway = start_gateway(fleet, surroundings)
        with fleet.client() as client:
            yield fleet, gateway, client, surroundings


def start_gateway(fleet: Fleet, surroundings: Media) -> Program:
    return fleet.start_gateway(JOBWIRE_JOBS_STORE_TRACEBACKS="true", **surroundings.env)


def invent_the_past(valkey_url: str) -> None:
    """Counters of the last hour and failures of the last day, so that the plots have a shape. Only
    for pictures: everything else in them was done by the programs."""
    address = valkey_url.replace("valkey://", "redis://")
    plain = Redis.from_url(address)  # pyright: ignore[reportUnknownMemberType] - untyped there
    keys, minute = StreamsKeys(), int(time.time()) // 60
    for ago in range(-2, 60):
        done = round(64 + 22 * math.sin(ago / 7) + 9 * math.sin(ago * 1.9))
        failed = max(0, round(3 * math.sin(ago / 5) - 1)) if ago < 40 else 0
        counts = {Status.DONE: done, Status.ERROR: failed, Counter.SUBMISSIONS: done + failed}
        buckets = {f"{DURATION}{bucket}": done // 4 for bucket in (22, 26, 30, 38)}
        plain.hset(keys.stats(minute - ago), mapping={**counts, **buckets})
        plain.expire(keys.stats(minute - ago), 7200)
    timeout = ["invoice", "timeout", "no answer from the tax service within 30 s"]
    address = ["invoice", "invalid_recipient", "550 5.1.1 mailbox unavailable"]
    for ago in (*range(1, 4), 9, 10, 11, 15, 19):
        at = str(int(time.time() - 3600 * ago) * 1000)
        times = [1 + (ago * 7) % 5, at, at, "0", ""]
        kind = timeout if ago < 4 else address
        key = keys.failures(minute // 60 - ago)
        plain.hset(key, json.dumps(kind, separators=(",", ":")), json.dumps(times))
        plain.expire(key, 90_000)
    plain.close()


def fill(client: Client) -> dict[str, str]:
    """Jobs in every state, by use; the ids of those that are shown by themselves."""
    jobs: list[Job] = []
    for number in range(36):
        jobs.append(client.submit("invoice", {"order": 4700 + number}))
        jobs.append(client.submit("resize", {"key": f"photos/{number:04}.jpg", "width": 1280}))
        time.sleep(0.02)
    for number in range(14):
        fault = "timeout" if number < 11 else "address"
        jobs.append(client.submit("invoice", {"order": 4800 + number, "fault": fault}))
        time.sleep(0.01)
    jobs.append(client.submit("import", {"file": "orders.csv", "bad": True}))
    done = client.submit("summarize", {"document": "docs/worker.md", "sentences": 2})
    for job in (*jobs, done):
        wait_until_sync(
            lambda job=job: client.get(job.job_id).status in ("done", "error"), "an end"
        )
    client.submit("import", {"file": "tomorrow.csv"}, delay_s=7200)
    client.cancel(client.submit("resize", {"key": "photos/x.jpg"}, delay_s=60).job_id)
    for _ in range(2):
        client.submit("resize", {"key": "photos/big.tif", "s": HOLD_S})
    payload = {
        "document": "docs/worker.md",
        "order": 12345678901234567890,
        "api_key": "not shown",
        "hold_s": HOLD_S,
        "shaky": True,
    }
    running = client.submit(
        "summarize", payload, max_attempts=3, timeout_s=300, idempotency_key="page-7c1e0b"
    )
    wait_until_sync(
        lambda: "62" in str(client.get(running.job_id).progress), "the job to report", timeout_s=60
    )
    failed = next(job for job in jobs if client.get(job.job_id).status == "error")
    return {"running": running.job_id, "done": done.job_id, "failed": failed.job_id}


class Camera:
    """Opens a route and takes its picture."""

    def __init__(self, browser: Browser, url: str, folder: Path, image_format: str) -> None:
        self._browser = browser
        self._url = url
        self._folder = folder
        self._format = image_format

    def take(
        self,
        name: str,
        route: str,
        until: str,
        *,
        size: tuple[int, int] = DESKTOP,
        dark: bool = False,
        act: Callable[[Page], None] | None = None,
    ) -> None:
        with self._browser.page(size) as page:
            scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            page.call("Emulation.setEmulatedMedia", features=[scheme])
            page.open(f"{self._url}/{route}")
            page.until_text("body", until)
            if act is not None:
                act(page)
            time.sleep(0.6)  # fonts, plots and animations
            quality = {"quality": 88} if self._format == "webp" else {}
            answer = page.call("Page.captureScreenshot", format=self._format, **quality)
            (self._folder / f"{name}.{self._format}").write_bytes(b64decode(answer["data"]))


def shoot(camera: Camera, ids: dict[str, str]) -> None:
    running, failed = (f"#/jobs/streams/{ids[name]}" for name in ("running", "failed"))
    shots = [
        ("now", "#/", "Just ended"),
        ("jobs", "#/jobs", "Newest first"),
        ("job", running, "tokens"),
        ("job-error", f"{failed}?tab=result", "tax service"),
        ("job-payload", f"{running}?tab=payload", "document"),
        ("wire", f"{running}?tab=wire", "idempotency:"),
        ("failures", "#/failures", "tax service"),
        ("workers", "#/workers", "MiB used"),
    ]
    for name, route, until in shots:
        camera.take(f"page-{name}", route, until)
        camera.take(f"page-{name}-dark", route, until, dark=True)
        camera.take(f"page-{name}-phone", route, "of " if name == "jobs" else until, size=PHONE)

    def open_sheet(page: Page) -> None:
        wait_until_sync(lambda: page.run('!!document.querySelector(".btn.primary.wide")'), "Submit")
        page.click(".btn.primary.wide")
        page.until_text("dialog", "A JSON object")

    camera.take("page-submit", "#/jobs", "Newest first", act=open_sheet)

    def open_on_phone(page: Page) -> None:
        button = '[aria-label="Submit a job"]'
        wait_until_sync(lambda: page.run(f"!!document.querySelector('{button}')"), "Submit")
        page.click(button)
        page.until_text("dialog", "A JSON object")

    camera.take("page-submit-phone", "#/jobs", "Running", size=PHONE, dark=True, act=open_on_phone)


def shoot_media(camera: Camera, surroundings: Media, client: Client) -> None:
    camera.take("page-images-empty", "#/images", "No image yet")
    surroundings.photos(client)
    photo = surroundings.portrait

    def send(page: Page) -> None:
        upload(page, photo)

    camera.take("page-images-sending", "#/images", "newest first", act=send)
    wait_until_sync(lambda: client.images.list().images[0].status == "ready", "the photo")
    surroundings.tasks()
    surroundings.slow_task()
    chosen = next(each for each in client.images.list().images if each.filename == "cat.jpg")
    for name, route in (
        ("images", "#/images"),
        ("image", f"#/images/{chosen.image_id}"),
        ("predictions", "#/predictions?state=succeeded"),
        ("predictions-open", "#/predictions"),
    ):
        for suffix, size, dark in (("", DESKTOP, False), ("-dark", DESKTOP, True)):
            camera.take(
                f"page-{name}{suffix}", route, "", size=size, dark=dark, act=pictures_loaded
            )
        camera.take(f"page-{name}-phone", route, "", size=PHONE, act=pictures_loaded)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default="docs/img", type=Path)
    parser.add_argument("--format", default="webp", choices=("webp", "png"))
    parser.add_argument("--only", default="", choices=("jobs", "media", "queues", "tour"))
    options = parser.parse_args()
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        raise SystemExit("chromium is not installed (Debian: apt-get install chromium)")
    with tempfile.TemporaryDirectory() as temporary:
        devtools = DevTools(program, Path(temporary))
        try:
            browser = Browser(devtools)
            if options.only in ("", "tour"):
                with site(Path(temporary) / "tour") as (fleet, _, client, surroundings):
                    camera = Camera(browser, fleet.url, folder, options.format)
                    shoot_tour(camera, fleet, surroundings, client)
            if options.only != "tour":
                with site(Path(temporary) / "site") as (fleet, gateway, client, surroundings):
                    camera = Camera(browser, fleet.url, folder, options.format)
                    shoot_site(camera, fleet, gateway, client, surroundings, options.only)
        finally:
            devtools.close()


def shoot_site(
    camera: Camera,
    fleet: Fleet,
    gateway: Program,
    client: Client,
    surroundings: Media,
    only: str,
) -> None:
    """All screens, or those of one part."""
    if only in ("", "jobs"):
        camera.take("page-empty", "#/", "No job yet")
    if only in ("", "media"):
        shoot_media(camera, surroundings, client)
    if only == "media":
        return
    invent_the_past(fleet.valkey.url)
    gateway.kill()  # it has read the minutes that have ended
    start_gateway(fleet, surroundings)
    worker = fleet.start_worker(APP, JOBWIRE_WORKER_SLOTS="12", JOBWIRE_QUEUES_METRICS_MINUTES="60")
    if only in ("", "queues"):
        shoot_queues(camera, fill_queues(client))
    if only in ("", "jobs"):
        shoot(camera, fill(client))
    worker.kill()


if __name__ == "__main__":
    main()
