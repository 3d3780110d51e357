"""What `tools/screenshots.py` shows of images and predictions: a bucket, a bot with a real model,
photographs that are free to use, sent as their users send them."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import httpx

from jobwire import Client
from jobwire.local import LocalS3
from jobwire.systems.predictions.demo.cog import CogServer, environment, user_cache
from tests.handlers.photo.images import image, jpeg, photograph
from tests.page.media import choose_files
from tests.standins import telegram
from tests.support.browser import Page
from tests.support.wait import wait_until_sync

_SECRET: Final = "a secret of the pictures only"  # noqa: S105 - nothing is protected by it
_PHOTOS: Final = {"launch.jpg": "rocket.jpg", "cat.jpg": "chelsea.png", "coffee.jpg": "coffee.png"}


class Media:
    """A bucket and the bot's surroundings; `env` is for the gateway."""

    def __init__(self, folder: Path, url: str, store: LocalS3, cog: CogServer) -> None:
        self._folder = folder
        self._url = url
        self.telegram = telegram.TelegramStandin()
        self.env = {
            "JOBWIRE_OBJECTS_ENDPOINT": store.endpoint,
            "JOBWIRE_OBJECTS_BUCKET": store.config.bucket,
            "JOBWIRE_OBJECTS_ACCESS_KEY": store.access_key,
            "JOBWIRE_OBJECTS_SECRET_KEY": store.secret_key,
            "JOBWIRE_IMAGES_WORKERS": "1",
            "JOBWIRE_PREDICTIONS_PROVIDER": "cog",
            "JOBWIRE_PREDICTIONS_COG_URL": cog.url,
            "JOBWIRE_PREDICTIONS_MODEL": "jobwire/cartoon",
            "JOBWIRE_PREDICTIONS_WEBHOOK_SECRET": _SECRET,
            "JOBWIRE_PREDICTIONS_TELEGRAM_TOKEN": telegram.TOKEN,
            "JOBWIRE_PREDICTIONS_TELEGRAM_SECRET": telegram.SECRET,
            "JOBWIRE_PREDICTIONS_TELEGRAM_URL": self.telegram.url,
            "JOBWIRE_PREDICTIONS_PUBLIC_URL": url,
            "JOBWIRE_PREDICTIONS_ALLOW_LOOPBACK": "true",
        }

    def file(self, name: str, body: bytes) -> Path:
        path = self._folder / name
        path.write_bytes(body)
        return path

    def photos(self, client: Client) -> None:
        """Images in every state, by use."""
        torn = self.file("IMG_0412.jpg", _large("coffee.png")[:-40_000])
        client.images.put(torn)
        for name, shown in _PHOTOS.items():
            client.images.publish(self.file(name, _large(shown)))

    @property
    def portrait(self) -> str:
        # Larger than this, the enlarged photograph has faces in its folds.
        return str(self.file("portrait.jpg", _large("astronaut.png", 1024)))

    def tasks(self) -> None:
        """Photos that users sent to the bot: delivered, refused, and one in progress."""
        for caption, name in (
            ("as a cartoon", "coffee.png"),
            ("negative", "rocket.jpg"),
            ("make it look drawn by hand", "chelsea.png"),
        ):
            self._send(jpeg(photograph(name)[..., :3]), caption)
            self._wait(caption, "delivered")
        self._send(b"GIF89a" + bytes(200), "a moving picture")
        self._wait("a moving picture", "delivered")

    def slow_task(self) -> None:
        """One whose photo cannot be downloaded yet."""
        self.telegram.plan("getFile", *[telegram.flood(30)] * 3)
        update = self.telegram.photo_message(jpeg(photograph("coffee.png")), caption="watercolour")
        self.telegram.deliver(update)

    def _send(self, body: bytes, caption: str) -> None:
        self.telegram.deliver(self.telegram.photo_message(body, caption=caption))

    def _wait(self, caption: str, state: str) -> None:
        def reached() -> bool:
            body: dict[str, Any] = httpx.get(
                f"{self._url}/v1/predictions/recent", trust_env=False, timeout=30
            ).json()
            return (caption, state) in [
                (each["prompt"], each["state"]) for each in body["predictions"]
            ]

        wait_until_sync(reached, f"the task {caption!r}", timeout_s=60)


@contextlib.contextmanager
def media(folder: Path, url: str) -> Generator[Media]:
    """The bucket, the model and the chat service."""
    folder.mkdir()
    cog = CogServer(environment(user_cache()), folder / "model")
    try:
        with LocalS3(folder / "s3", bucket="shop") as store:
            cog.wait_ready()
            started = Media(folder, url, store, cog)
            with started.telegram:
                yield started
    finally:
        cog.stop()


def upload(page: Page, path: str) -> None:
    """Choose a photo on the page; returns while it is being processed and the page does not
    change."""
    choose_files(page, path)
    stages = ("decoding it", "looking for faces", "encoding it")
    wait_until_sync(lambda: any(stage in page.text(".sent") for stage in stages), "a stage")
    page.run("window.requestAnimationFrame = () => 0")


def pictures_loaded(page: Page) -> None:
    """Wait until all pictures of the page are there."""
    loaded = "document.images.length && [...document.images].every((each) => each.complete)"
    missing = "!document.querySelector('.pic.hole:empty, .tasks tr:has(.done) .thumb.none')"
    wait_until_sync(lambda: page.run(f"!!({loaded}) && {missing}"), "the pictures")


def _large(name: str, width: int = 3024) -> bytes:
    """A photograph as wide as one of a phone."""
    picture = image(photograph(name)[..., :3])
    return picture.resize(width / picture.width).jpegsave_buffer(Q=95)
