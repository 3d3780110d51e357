"""A chat: keeps the messages that a bot sends and edits, and the photos that users sent."""

from __future__ import annotations

import itertools
import threading
from base64 import b64decode
from dataclasses import dataclass
from typing import Literal, cast

from tests.standins.server import Call, Request, Standin, json_reply
from tests.support.s3_proxy import Reply


@dataclass(slots=True)
class Message:
    """One message of the bot as the user sees it now."""

    chat_id: int
    message_id: int
    kind: Literal["text", "picture"]
    content: str | bytes


class ChatStandin(Standin):
    """`send`, `edit_text`, `edit_picture`, `file` are the names of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, bytes] = {}
        self.blocked: set[int] = set()
        self.messages: dict[int, Message] = {}
        self._ids = itertools.count(1000)
        self._lock = threading.Lock()

    def in_chat(self, chat_id: int) -> list[Message]:
        return [each for each in self.messages.values() if each.chat_id == chat_id]

    def pictures(self, chat_id: int) -> list[bytes]:
        found = [each.content for each in self.in_chat(chat_id) if each.kind == "picture"]
        return cast("list[bytes]", found)

    def texts(self, chat_id: int) -> list[str]:
        return [str(each.content) for each in self.in_chat(chat_id) if each.kind == "text"]

    def call(self, request: Request) -> Call:
        name = request.path.split("/")[1]
        return name, lambda: self._answer(name, request)

    def _answer(self, name: str, request: Request) -> Reply:
        if name == "file":
            body = self.files.get(request.path.removeprefix("/file/"))
            return Reply(404) if body is None else Reply(200, (), body)
        given = request.json()
        chat_id = cast("int", given["chat_id"])
        if chat_id in self.blocked:
            return json_reply(403, {"description": "bot was blocked by the user"})
        with self._lock:
            if name == "send":
                message = Message(chat_id, next(self._ids), "text", str(given["text"]))
                self.messages[message.message_id] = message
                return json_reply(200, {"message_id": message.message_id})
            if name == "send_picture":  # used by other programs only
                picture = b64decode(str(given["picture"]))
                message = Message(chat_id, next(self._ids), "picture", picture)
                self.messages[message.message_id] = message
                return json_reply(200, {"message_id": message.message_id})
            message = self.messages.get(cast("int", given["message_id"]))
            if message is None or message.chat_id != chat_id:
                return json_reply(400, {"description": "message to edit not found"})
            if name == "edit_text":
                message.kind, message.content = "text", str(given["text"])
            else:
                message.kind, message.content = "picture", b64decode(str(given["picture"]))
        return json_reply(200, {"message_id": message.message_id})
