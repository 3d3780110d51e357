"""The pictures of docs/tour.md: does what the page says, with the programs that are on it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jobwire import Client
from tests.docs.pages import blocks
from tests.docs.runner import run_node
from tests.fleet.runner import Fleet
from tests.page.site import click_text, fill, press, until
from tests.support.browser import Page
from tests.support.program import ROOT
from tests.support.wait import wait_until_sync
from tools.screenshot_media import Media, pictures_loaded, upload

if TYPE_CHECKING:
    from tools.screenshots import Camera

TOUR: Final = ROOT / "docs" / "tour.md"
_PAYLOAD: Final = {"prompt": "Why is the sea salty? Answer in two sentences."}
_QUEUE: Final = "video"


def shoot_tour(camera: Camera, fleet: Fleet, surroundings: Media, client: Client) -> None:
    """Every picture, in the order of the page."""
    _photo(camera, surroundings, client)
    _chat(camera, fleet)
    _queue(camera, fleet, client)


def _photo(camera: Camera, surroundings: Media, client: Client) -> None:
    photo = surroundings.portrait
    camera.take("tour-photo-sending", "#/images", "No image", act=lambda page: upload(page, photo))
    wait_until_sync(lambda: client.images.list().images[0].status == "ready", "the photo")
    camera.take("tour-photo", "#/images", "Newest result", act=pictures_loaded)


def _chat(camera: Camera, fleet: Fleet) -> None:
    worker = fleet.start("worker")
    worker.wait_for_line("worker with", timeout_s=120)

    def write(page: Page) -> None:
        until(page, 'document.querySelector(".btn.primary.wide")', "Submit")
        press(page, "n")
        page.until_text("dialog", "A JSON object")
        page.run("document.querySelector('select[name=task]').value = 'chat'")
        page.run("document.querySelector('select[name=task]').dispatchEvent(new Event('change'))")
        fill(page, "#payload", json.dumps(_PAYLOAD, indent=2))

    def send(page: Page) -> None:
        write(page)
        click_text(page, "dialog footer button", "Submit")
        wait_until_sync(lambda: "Done" in page.text(".jobhead"), "the answer", timeout_s=120)

    camera.take("tour-chat-sheet", "#/", "streams", act=write)
    camera.take("tour-chat", "#/", "streams", act=send)
    worker.kill()


def _queue(camera: Camera, fleet: Fleet, client: Client) -> None:
    folder = fleet.folder / "tour"
    folder.mkdir()
    program, producer = (
        next(each for each in blocks(TOUR) if each.file == name) for name in ("video.py", "add.mjs")
    )
    (folder / program.file).write_text(program.text)
    worker = fleet.start("worker", "video:app", env={"PYTHONPATH": str(folder)})
    worker.wait_for_line("worker with", timeout_s=60)
    url = fleet.valkey.url.replace("valkey://", "redis://")
    run_node(folder, producer, {"VALKEY_URL": url, "PATH": str(Path(sys.executable).parent)})
    camera.take("tour-queue", "#/jobs?wire=bullmq", _QUEUE)
    (job,) = _jobs(client)
    camera.take("tour-queue-job", f"#/jobs/bullmq/{_QUEUE}/{job}?tab=result", "clips/harbour.mp4")
    worker.kill()


def _jobs(client: Client) -> list[str]:
    queue = client.queue(_QUEUE)
    wait_until_sync(lambda: queue.status().counts["completed"] == 1, "the job", timeout_s=60)
    return [job.id for job in queue.jobs("completed").jobs]
