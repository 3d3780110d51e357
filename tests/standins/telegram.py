"""Telegram's Bot API over HTTP: messages, files, updates by webhook and by getUpdates.

Written from the public documentation, with its limits and its texts of errors. Each method's name
is the name of its call, so that a test can plan faults for it; `file` is a download.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.standins.server import Call, Request, Standin, answers, json_reply
from tests.support.s3_proxy import Mishap, Reply

TOKEN: Final = "424242:AA-token_of_the_test_suite"
SECRET: Final = "secret-of-the-test-suite"
MAX_DOWNLOAD: Final = 20 * 1024 * 1024
MAX_PHOTO: Final = 10 * 1024 * 1024
MAX_DOCUMENT: Final = 50 * 1024 * 1024
DATE_S: Final = 1_769_000_000


def flood(retry_after: int) -> Mishap:
    """A fault: too many requests."""
    return answers(
        429,
        {
            "ok": False,
            "error_code": 429,
            "description": f"Too Many Requests: retry after {retry_after}",
            "parameters": {"retry_after": retry_after},
        },
    )


@dataclass(slots=True)
class SentMessage:
    """One message of the bot as the user sees it now."""

    chat_id: int
    message_id: int
    text: str = ""
    kind: str = "text"
    picture: bytes = b""
    reply_to: int | None = None


class _BadRequest(Exception):
    def __init__(self, description: str, code: int = 400, **parameters: object) -> None:
        super().__init__(description)
        self.code = code
        self.parameters = parameters


@dataclass(slots=True)
class _Upload:
    body: bytes
    name: str


@dataclass(slots=True)
class _Queue:
    """Updates that were not confirmed yet."""

    updates: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    changed: threading.Condition = field(default_factory=threading.Condition)
    poller: int = 0


class TelegramStandin(Standin):
    """One bot."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, bytes] = {}
        self.blocked: set[int] = set()
        self.migrated: dict[int, int] = {}
        self.messages: dict[int, SentMessage] = {}
        self.webhook_url = ""
        self.webhook_secret = ""
        self.closed = False
        self._queue = _Queue()
        self._ids = itertools.count(5000)
        self._update_ids = itertools.count(900_000_001)
        self._message_ids = itertools.count(1)
        self._lock = threading.Lock()

    # ── the user's side ──────────────────────────────────────────────────────────────────────────

    def photo_message(
        self, body: bytes, *, chat_id: int = 77, language: str = "en", **more: Any
    ) -> dict[str, Any]:
        """The update for a photo that a user sends; `more` are members of the message."""
        file_id = self.store(body)
        sizes = [
            {"file_id": f"{file_id}-small", "width": 90, "height": 60, "file_size": 900},
            {"file_id": file_id, "width": 1280, "height": 853, "file_size": len(body)},
        ]
        return self.message(chat_id=chat_id, language=language, photo=sizes, **more)

    def store(self, body: bytes) -> str:
        """Keep a file of a user; its id."""
        file_id = f"AgAC{len(self.files)}"
        self.files[file_id] = body
        return file_id

    def message(
        self, *, chat_id: int = 77, language: str = "en", chat_type: str = "private", **members: Any
    ) -> dict[str, Any]:
        """An update with a message."""
        return self.update(
            message={
                "message_id": next(self._message_ids),
                "date": DATE_S,
                "chat": {"id": chat_id, "type": chat_type},
                "from": {"id": chat_id, "is_bot": False, "language_code": language},
                **members,
            }
        )

    def update(self, **members: Any) -> dict[str, Any]:
        return {"update_id": next(self._update_ids), **members}

    def queue(self, *updates: dict[str, Any]) -> None:
        """Updates for getUpdates."""
        with self._queue.changed:
            self._queue.updates += updates
            self._queue.changed.notify_all()

    @property
    def unconfirmed(self) -> int:
        return len(self._queue.updates)

    def deliver(self, update: object, *, secret: str | None = None, times: int = 1) -> list[int]:
        """Send an update to the webhook; the statuses of the answers."""
        statuses: list[int] = []
        body = update if isinstance(update, bytes) else json.dumps(update).encode()
        for _ in range(times):
            request = urllib.request.Request(
                self.webhook_url,
                body,
                {
                    "Content-Type": "application/json",
                    "X-Telegram-Bot-Api-Secret-Token": self.webhook_secret
                    if secret is None
                    else secret,
                },
            )
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    statuses.append(answer.status)
            except urllib.error.HTTPError as refused:
                with refused:
                    statuses.append(refused.code)
        return statuses

    def in_chat(self, chat_id: int) -> list[SentMessage]:
        return [each for each in self.messages.values() if each.chat_id == chat_id]

    def pictures(self, chat_id: int) -> list[bytes]:
        return [each.picture for each in self.in_chat(chat_id) if each.kind != "text"]

    def texts(self, chat_id: int) -> list[str]:
        return [each.text for each in self.in_chat(chat_id) if each.kind == "text"]

    # ── the bot's side ───────────────────────────────────────────────────────────────────────────

    def call(self, request: Request) -> Call:
        parts = request.path.strip("/").split("/", 2)
        if parts[0] == "file":
            known = parts[1] == f"bot{TOKEN}"
            return "file", lambda: self._file(parts[2]) if known else Reply(404)
        if parts[0] != f"bot{TOKEN}":
            return "refused", lambda: _error(401, "Unauthorized")
        method = parts[1]
        return method, lambda: self._answer(method, request)

    def _answer(self, method: str, request: Request) -> Reply:
        handler = getattr(self, f"_do_{method}", None)
        if handler is None:
            return _error(404, "Not Found: method not found")
        try:
            params, uploads = _read(request)
            result = handler(params, uploads)
        except _BadRequest as refused:
            return _error(refused.code, str(refused), **refused.parameters)
        return json_reply(200, {"ok": True, "result": result})

    def _do_getMe(self, _params: dict[str, Any], _uploads: object) -> object:
        return {"id": int(TOKEN.split(":")[0]), "is_bot": True, "username": "Test_Bot"}

    def _do_setWebhook(self, params: dict[str, Any], _uploads: object) -> object:
        self.webhook_url = params["url"]
        self.webhook_secret = params.get("secret_token", "")
        return True

    def _do_deleteWebhook(self, _params: dict[str, Any], _uploads: object) -> object:
        self.webhook_url = ""
        return True

    def _do_getWebhookInfo(self, _params: dict[str, Any], _uploads: object) -> object:
        return {"url": self.webhook_url, "pending_update_count": self.unconfirmed}

    def _do_getUpdates(self, params: dict[str, Any], _uploads: object) -> object:
        if self.webhook_url:
            raise _BadRequest(
                "Conflict: can't use getUpdates method while webhook is active; "
                "use deleteWebhook to delete the webhook first",
                409,
            )
        queue = self._queue
        with queue.changed:
            queue.poller += 1
            mine = queue.poller
            queue.changed.notify_all()  # an earlier poll of the same bot ends
            offset = params.get("offset", 0)
            queue.updates[:] = [each for each in queue.updates if each["update_id"] >= offset]
            queue.changed.wait_for(
                lambda: queue.updates or queue.poller != mine or self.closed,
                timeout=params.get("timeout", 0),
            )
            if queue.poller != mine:
                raise _BadRequest("Conflict: terminated by other getUpdates request", 409)
            return queue.updates[: params.get("limit", 100)]

    def _do_sendMessage(self, params: dict[str, Any], _uploads: object) -> object:
        chat_id = self._chat(params)
        text = _checked_text(params["text"])
        reply: dict[str, int] = params.get("reply_parameters") or {}
        with self._lock:
            message = SentMessage(chat_id, next(self._ids), text, reply_to=reply.get("message_id"))
            self.messages[message.message_id] = message
        return {"message_id": message.message_id, "chat": {"id": chat_id}, "text": text}

    def _do_editMessageText(self, params: dict[str, Any], _uploads: object) -> object:
        message, text = self._own_message(params), _checked_text(params["text"])
        if message.kind != "text":
            raise _BadRequest("Bad Request: there is no text in the message to edit")
        if message.text == text:
            raise _BadRequest("Bad Request: message is not modified")
        message.text = text
        return {"message_id": message.message_id}

    def _do_editMessageMedia(
        self, params: dict[str, Any], uploads: Mapping[str, _Upload]
    ) -> object:
        message, media = self._own_message(params), params["media"]
        name = media["media"].removeprefix("attach://")
        if name not in uploads:
            raise _BadRequest("Bad Request: wrong HTTP URL specified")
        body, kind = uploads[name].body, media["type"]
        if kind == "photo":
            _check_photo(body)
        elif len(body) > MAX_DOCUMENT:
            raise _BadRequest("Request Entity Too Large", 413)
        if (message.kind, message.picture) == (kind, body):
            raise _BadRequest("Bad Request: message is not modified")
        message.kind, message.picture, message.text = kind, body, ""
        return {"message_id": message.message_id}

    def _do_getFile(self, params: dict[str, Any], _uploads: object) -> object:
        body = self.files.get(params["file_id"])
        if body is None:
            raise _BadRequest("Bad Request: invalid file_id")
        if len(body) > MAX_DOWNLOAD:
            raise _BadRequest("Bad Request: file is too big")
        return {"file_id": params["file_id"], "file_path": f"photos/{params['file_id']}.jpg"}

    def _file(self, path: str) -> Reply:
        body = self.files.get(path.removeprefix("photos/").removesuffix(".jpg"))
        return Reply(404) if body is None else Reply(200, (), body)

    def _chat(self, params: dict[str, Any]) -> int:
        chat_id = params["chat_id"]
        if chat_id in self.migrated:
            raise _BadRequest(
                "Bad Request: group chat was upgraded to a supergroup chat",
                migrate_to_chat_id=self.migrated[chat_id],
            )
        if chat_id in self.blocked:
            raise _BadRequest("Forbidden: bot was blocked by the user", 403)
        return chat_id

    def _own_message(self, params: dict[str, Any]) -> SentMessage:
        chat_id = self._chat(params)
        message = self.messages.get(params["message_id"])
        if message is None or message.chat_id != chat_id:
            raise _BadRequest("Bad Request: message to edit not found")
        return message

    def __exit__(self, *_: object) -> None:
        self.closed = True
        with self._queue.changed:
            self._queue.changed.notify_all()
        super().__exit__()


def _error(code: int, description: str, **parameters: object) -> Reply:
    body: dict[str, object] = {"ok": False, "error_code": code, "description": description}
    if parameters:
        body["parameters"] = parameters
    return json_reply(code, body)


def _checked_text(text: str) -> str:
    if not text:
        raise _BadRequest("Bad Request: message text is empty")
    if len(text) > 4096:
        raise _BadRequest("Bad Request: message is too long")
    return text


def _check_photo(body: bytes) -> None:
    if len(body) > MAX_PHOTO:
        raise _BadRequest("Request Entity Too Large", 413)
    if body.startswith(b"\x89PNG"):
        width, height = (int.from_bytes(body[at : at + 4], "big") for at in (16, 20))
        if width + height > 10_000 or max(width, height) > 20 * min(width, height):
            raise _BadRequest("Bad Request: PHOTO_INVALID_DIMENSIONS")
    elif not body.startswith(b"\xff\xd8"):
        raise _BadRequest("Bad Request: IMAGE_PROCESS_FAILED")


def _read(request: Request) -> tuple[dict[str, Any], dict[str, _Upload]]:
    """Parameters from JSON or from a multipart form, whose values are JSON where they can be."""
    content_type = request.headers.get("content-type", "")
    if not content_type.startswith("multipart/form-data"):
        return json.loads(request.body or b"{}"), {}
    boundary = f"--{content_type.partition('boundary=')[2]}".encode()
    params: dict[str, Any] = {}
    uploads: dict[str, _Upload] = {}
    for part in request.body.split(boundary)[1:-1]:
        head, _, body = part.removesuffix(b"\r\n").partition(b"\r\n\r\n")
        names = dict(re.findall(r'(name|filename)="([^"]*)"', head.decode()))
        if "filename" in names:
            uploads[names["name"]] = _Upload(body, names["filename"])
            continue
        text = body.decode()
        try:
            params[names["name"]] = json.loads(text)
        except ValueError:
            params[names["name"]] = text
    return params, uploads
