"""A gateway for the page's tests with images and predictions: a bucket, a bot, real photos."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

import httpx
import psutil

from jobwire import Client
from jobwire.gateway.auth import new_key
from jobwire.local import free_port
from jobwire.objects import BucketConfig
from tests.page.site import PageSite
from tests.standins import replicate, telegram
from tests.support import Fresh, wait_until_sync
from tests.support.browser import Page
from tests.support.s3 import make_bucket
from tests.systems.images.site import plain_photo, portrait

_KEYS: Final = {
    "ops": {"scopes": ["admin"]},
    "reader": {"scopes": ["read"]},
    "acme": {"scopes": ["read", "submit"], "tenant": "acme"},
}
MODEL: Final = "test/invert:abc123"


class MediaSite:
    """`media.url` needs one of `media.keys`; `media.client` has the key of an admin."""

    def __init__(
        self,
        site: PageSite,
        store: BucketConfig,
        cog_url: str,
        folder: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """`env` are further variables of the gateway."""
        self._fleet = site.fleet
        self.folder = folder
        self.bucket = replace(store, bucket=Fresh()("media"))
        self.telegram = telegram.TelegramStandin()
        self.replicate = replicate.ReplicateStandin(cog_url, lambda: round(time.time() * 1000))
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.keys: dict[str, str] = {}
        settings: list[dict[str, Any]] = []
        for name, options in _KEYS.items():
            self.keys[name], hashed = new_key()
            settings.append({"name": name, "hash": hashed, **options})
        self._arguments = ("gateway", "--port", str(port))
        self._env = {
            "JOBWIRE_DATA_DIR": str(folder / "data"),
            "JOBWIRE_GATEWAY_KEYS": json.dumps(settings),
            "JOBWIRE_OBJECTS_ENDPOINT": self.bucket.endpoint,
            "JOBWIRE_OBJECTS_BUCKET": self.bucket.bucket,
            "JOBWIRE_OBJECTS_ACCESS_KEY": self.bucket.access_key,
            "JOBWIRE_OBJECTS_SECRET_KEY": self.bucket.secret_key,
            "JOBWIRE_IMAGES_WORKERS": "1",
            "JOBWIRE_IMAGES_MAX_UPLOAD_MB": "1",
            "JOBWIRE_PREDICTIONS_MODEL": MODEL,
            "JOBWIRE_PREDICTIONS_REPLICATE_TOKEN": replicate.TOKEN,
            "JOBWIRE_PREDICTIONS_REPLICATE_URL": self.replicate.url,
            "JOBWIRE_PREDICTIONS_WEBHOOK_SECRET": replicate.SECRET,
            "JOBWIRE_PREDICTIONS_TELEGRAM_TOKEN": telegram.TOKEN,
            "JOBWIRE_PREDICTIONS_TELEGRAM_SECRET": telegram.SECRET,
            "JOBWIRE_PREDICTIONS_TELEGRAM_URL": self.telegram.url,
            "JOBWIRE_PREDICTIONS_PUBLIC_URL": self.url,
            "JOBWIRE_PREDICTIONS_ALLOW_LOOPBACK": "true",
            "JOBWIRE_PREDICTIONS_MAX_PER_HOUR": "0",
            # The tests request the reconcile passes.
            "JOBWIRE_PREDICTIONS_RECONCILE_EVERY": "30m",
            **(env or {}),
        }
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        make_bucket(self.bucket)
        self._stack.enter_context(self.telegram)
        self._stack.enter_context(self.replicate)
        self._gateway = self._fleet.start(*self._arguments, env=self._env)
        self._gateway.wait_for_line("gateway on", timeout_s=60)
        self._stack.callback(self._gateway.close)
        self.client = self._stack.enter_context(Client(self.url, api_key=self.keys["ops"]))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def file(self, name: str, body: bytes) -> str:
        """A file of the user; its path."""
        path = self.folder / name
        path.write_bytes(body)
        return str(path)

    def published(self, name: str = "portrait.jpg", body: bytes = b"") -> str:
        """A photo that was published; its image id."""
        photo = self.file(name, body or portrait())
        return self.client.images.publish(photo).image_id

    @contextlib.contextmanager
    def photo_workers_stopped(self) -> Generator[None]:
        """Stop the photo workers, so that accepted photos stay unprocessed."""
        workers = psutil.Process(self._gateway.pid).children(recursive=True)
        assert workers, "they are started by the first photo"
        for worker in workers:
            worker.suspend()
        try:
            yield
        finally:
            for worker in workers:
                worker.resume()

    def failed(self, name: str) -> str:
        """A photo that was accepted and failed; its image id."""
        photo = self.file(name, plain_photo()[:-200])
        image_id = self.client.images.put(photo)
        wait_until_sync(lambda: self.client.images.get(image_id).status == "failed", "the failure")
        return image_id

    def send_photo(self, caption: str, body: bytes = b"") -> None:
        """A user sends a photo to the bot."""
        update = self.telegram.photo_message(body or plain_photo(), caption=caption)
        assert self.telegram.deliver(update) == [200]

    def task(self, caption: str, state: str = "delivered") -> dict[str, Any]:
        """The task of a photo, once it is in this state."""

        def found() -> dict[str, Any] | None:
            body = self.get("/v1/predictions/recent?limit=50")
            fits = [each for each in body["predictions"] if each["prompt"] == caption]
            return next((each for each in fits if each["state"] == state), None)

        task = wait_until_sync(found, f"the task {caption!r} to be {state}", timeout_s=60)
        assert task is not None
        return task

    def get(self, path: str, key: str = "ops") -> dict[str, Any]:
        headers = {"authorization": f"Bearer {self.keys[key]}"}
        answer = httpx.get(f"{self.url}{path}", headers=headers, trust_env=False, timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def sign_in(self, page: Page, key: str = "ops") -> None:
        """Store the key in this tab."""
        script = f"sessionStorage.setItem('jobwire.key', {json.dumps(self.keys[key])})"
        page.call("Page.addScriptToEvaluateOnNewDocument", source=script)


def choose_files(page: Page, *paths: str) -> None:
    """Choose files in the file field, as by its dialog."""
    wait_until_sync(
        lambda: page.run("!!document.querySelector('.choose input')"), "the field for photos"
    )
    found = page.call("Runtime.evaluate", expression="document.querySelector('.choose input')")
    page.call("DOM.setFileInputFiles", files=list(paths), objectId=found["result"]["objectId"])


def drop_file(page: Page, name: str, text: str) -> None:
    """Drop a file on the field for photos."""
    wait_until_sync(lambda: page.run("!!document.querySelector('.drop')"), "the field for photos")
    page.run(
        f"""(() => {{
          const held = new DataTransfer();
          held.items.add(new File([{json.dumps(text)}], {json.dumps(name)}));
          const given = {{ dataTransfer: held, bubbles: true, cancelable: true }};
          document.querySelector(".drop").dispatchEvent(new DragEvent("drop", given));
        }})()"""
    )
