"""Replicate's wire over a real cog server: create, get, list, cancel, files, signed webhooks.

Written from Replicate's public documentation. A thread runs the predictions on cog, one after the
other, and sends each one's webhook as the plan says.
"""

from __future__ import annotations

import base64
import hmac
import json
import queue
import secrets
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, cast

from tests.standins.cog import predict
from tests.standins.server import Call, Request, Standin, json_reply
from tests.support.s3_proxy import Reply
from tests.support.wait import wait_until_sync

SECRET: Final = "whsec_" + base64.b64encode(b"a secret of the test suite").decode()
TOKEN: Final = "r8_token-of-the-test-suite"
_RETRIES_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook, ready to be sent."""

    url: str
    headers: Mapping[str, str]
    body: bytes


def signed(
    body: bytes, now_s: int, *, secret: str = SECRET, webhook_id: str = ""
) -> dict[str, str]:
    """The headers of a webhook."""
    webhook_id = webhook_id or f"msg_{secrets.token_hex(8)}"
    key = base64.b64decode(secret.removeprefix("whsec_"))
    text = f"{webhook_id}.{now_s}.".encode() + body
    value = base64.b64encode(hmac.digest(key, text, "sha256")).decode()
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(now_s),
        "webhook-signature": f"v1,{value}",
    }


class ReplicateStandin(Standin):
    """`create`, `get`, `list`, `cancel`, `file` are the names of its calls."""

    def __init__(self, cog_url: str, now_ms: Callable[[], int]) -> None:
        super().__init__()
        self._cog_url = cog_url
        self._now_ms = now_ms
        self.predictions: dict[str, dict[str, object]] = {}
        self.files: dict[str, bytes] = {}
        self.webhooks: Literal["once", "never"] = "once"
        self.copies = 1
        self.listed = True
        """False: predictions are not in the list yet."""
        self._webhook_urls: dict[str, str] = {}
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._runner = threading.Thread(target=self._run_all, daemon=True)
        self._lock = threading.Lock()
        self._senders: list[threading.Thread] = []

    def created_for(self, uuid: str) -> list[dict[str, object]]:
        """Every created (paid) prediction whose input contains this UUID."""
        return [p for p in self.predictions.values() if uuid in json.dumps(p["input"])]

    def wait_idle(self) -> None:
        """Wait until every prediction has ended and its webhooks were accepted or abandoned.

        No driver runs when a test moves the clock after this.
        """
        wait_until_sync(
            lambda: (
                all("completed_at" in each for each in list(self.predictions.values()))
                and not any(sender.is_alive() for sender in self._senders)
            ),
            "all predictions to end",
        )

    def webhook(self, prediction_id: str, **changes: object) -> Webhook:
        """A signed webhook about a prediction, with some members changed."""
        body = json.dumps({**self.predictions[prediction_id], **changes}).encode()
        return Webhook(
            self._webhook_urls[prediction_id], signed(body, self._now_ms() // 1000), body
        )

    def add_ended(self, prediction_id: str, picture: bytes) -> None:
        """A prediction that another program created, and that has ended."""
        path = f"/delivery/{prediction_id}/out-0.png"
        self.files[path] = picture
        self.predictions[prediction_id] = {
            "id": prediction_id,
            "input": {},
            "output": self.url + path,
            "status": "succeeded",
            "created_at": self.now(),
            "completed_at": self.now(),
        }

    def expire_outputs(self) -> None:
        """Delete the outputs, as Replicate does an hour after the end."""
        self.files.clear()
        for each in self.predictions.values():
            each |= {"output": None, "data_removed": True, "input": {}}

    def call(self, request: Request) -> Call:
        parts = request.path.strip("/").split("/")
        if parts[0] == "delivery":
            return "file", lambda: self._file(request.path)
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return "refused", lambda: json_reply(401, {"title": "Unauthenticated"})
        match (request.method, parts):
            case ("POST", ["v1", "predictions"]):
                return "create", lambda: self._create(request)
            case ("GET", ["v1", "predictions"]):
                return "list", lambda: self._list(request)
            case ("GET", ["v1", "predictions", prediction_id]):
                return "get", lambda: self._get(prediction_id)
            case ("POST", ["v1", "predictions", prediction_id, "cancel"]):
                return "cancel", lambda: self._get(prediction_id)
            case _:
                return "unknown", lambda: json_reply(404, {})

    def _create(self, request: Request) -> Reply:
        given = request.json()
        prediction_id = secrets.token_hex(13)
        prediction: dict[str, object] = {
            "id": prediction_id,
            "model": given["version"],
            "version": "hidden",
            "input": given["input"],
            "output": None,
            "logs": "",
            "error": None,
            "status": "starting",
            "created_at": self.now(),
            "data_removed": False,
            "urls": {"get": f"{self.url}/v1/predictions/{prediction_id}"},
        }
        with self._lock:
            self.predictions[prediction_id] = prediction
            self._webhook_urls[prediction_id] = str(given.get("webhook", ""))
        self._queue.put(prediction_id)
        return json_reply(201, prediction)

    def _get(self, prediction_id: str) -> Reply:
        found = self.predictions.get(prediction_id)
        return json_reply(404, {}) if found is None else json_reply(200, found)

    def _list(self, request: Request) -> Reply:
        since = datetime.fromisoformat(request.query.get("created_after", "2000-01-01T00:00:00Z"))
        found = [
            each
            for each in reversed(list(self.predictions.values()))
            if self.listed and datetime.fromisoformat(str(each["created_at"])) >= since
        ]
        first = int(request.query.get("cursor", "0"))
        following = None
        if len(found) > first + 100:
            following = f"{self.url}/v1/predictions?cursor={first + 100}"
        page = {"previous": None, "next": following, "results": found[first : first + 100]}
        return json_reply(200, page)

    def _file(self, path: str) -> Reply:
        body = self.files.get(path)
        if body is None:
            return Reply(404)
        return Reply(200, (("Content-Type", "application/octet-stream"),), body)

    def _run_all(self) -> None:
        while (prediction_id := self._queue.get()) is not None:
            prediction = self.predictions[prediction_id]
            prediction["status"] = "processing"
            try:
                ended = predict(self._cog_url, prediction["input"])
            except OSError as error:
                ended = {"status": "failed", "error": f"cog: {error}"}
            outputs: list[str] = []
            for index, each in enumerate(cast("list[str]", ended.get("output") or [])):
                path = f"/delivery/{prediction_id}/out-{index}.png"
                self.files[path] = base64.b64decode(each.partition(",")[2])
                outputs.append(self.url + path)
            prediction |= {
                "status": ended["status"],
                "error": ended.get("error"),
                "output": outputs or None,
            }
            ended_at = {"completed_at": self.now()}
            if self.webhooks == "once" and self._webhook_urls[prediction_id]:
                webhook = self.webhook(prediction_id, **ended_at)
                senders = [
                    threading.Thread(target=_send_until_taken, args=(webhook,), daemon=True)
                    for _ in range(self.copies)
                ]
                for sender in senders:
                    sender.start()
                # Before the end can be seen, so that `wait_idle` waits for these too.
                self._senders += senders
            prediction |= ended_at

    def now(self) -> str:
        """The time in the form of its objects."""
        return datetime.fromtimestamp(self._now_ms() / 1000, UTC).isoformat()

    def __enter__(self) -> ReplicateStandin:
        super().__enter__()
        self._runner.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.put(None)
        self._runner.join(30)
        super().__exit__()


def send(webhook: Webhook) -> int:
    """Send a webhook once; the status of the answer."""
    request = urllib.request.Request(
        webhook.url, webhook.body, {"content-type": "application/json", **webhook.headers}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code


def _send_until_taken(webhook: Webhook) -> None:
    for pause_s in (*_RETRIES_S, None):
        try:
            if send(webhook) < 300:
                return
        except OSError:
            pass
        if pause_s is not None:
            threading.Event().wait(pause_s)
