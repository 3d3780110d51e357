"""Our side of the chat stand-in: the chat port over its HTTP calls."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode

from jobwire.systems.predictions.chat import (
    Blocked,
    Edited,
    Later,
    MessageGone,
    PhotoTooLarge,
    Rejected,
    Sent,
)
from jobwire.systems.predictions.http_client import NoAnswer, Response, exchange

_TIMEOUT_S = 10.0


class HttpChat:
    """The client of a `ChatStandin`."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def fetch_photo(
        self, file_id: str, max_bytes: int
    ) -> bytes | PhotoTooLarge | Rejected | NoAnswer:
        answer = await self._exchange("GET", f"/file/{file_id}", None, max_bytes)
        if isinstance(answer, NoAnswer):
            return PhotoTooLarge() if answer.too_large else answer
        if answer.status == 200:
            return answer.body
        return NoAnswer("server error") if answer.status >= 500 else Rejected("no such file")

    async def answers(self) -> None:
        """It does."""

    async def send_text(
        self, chat_id: int, text: str, reply_to: int | None
    ) -> Sent | Blocked | Later | NoAnswer | Rejected:
        answer = await self._post("/send", chat_id=chat_id, text=text, reply_to=reply_to)
        if isinstance(answer, Response):
            return Sent(json.loads(answer.body)["message_id"])
        return Rejected("no such chat") if isinstance(answer, MessageGone) else answer

    async def edit_text(
        self, chat_id: int, message_id: int, text: str
    ) -> Edited | MessageGone | Blocked | Later | NoAnswer | Rejected:
        answer = await self._post("/edit_text", chat_id=chat_id, message_id=message_id, text=text)
        return Edited() if isinstance(answer, Response) else answer

    async def edit_picture(
        self, chat_id: int, message_id: int, picture: bytes | memoryview, mime: str
    ) -> Edited | MessageGone | Blocked | Later | NoAnswer | Rejected:
        answer = await self._post(
            "/edit_picture",
            chat_id=chat_id,
            message_id=message_id,
            picture=b64encode(picture).decode(),
            mime=mime,
        )
        return Edited() if isinstance(answer, Response) else answer

    async def _post(
        self, path: str, **given: object
    ) -> Response | MessageGone | Blocked | Later | NoAnswer | Rejected:
        answer = await self._exchange("POST", path, json.dumps(given).encode(), 1_000_000)
        if isinstance(answer, NoAnswer):
            return answer
        match answer.status:
            case 200:
                return answer
            case 403:
                return Blocked()
            case 429:
                return Later(float(answer.headers.get("retry-after", "1")))
            case 400 if b"not found" in answer.body:
                return MessageGone()
            case 400 | 413:
                return Rejected(answer.body.decode())
            case status:
                return NoAnswer(f"the chat answered {status}")

    async def _exchange(
        self, method: str, path: str, body: bytes | None, max_bytes: int
    ) -> Response | NoAnswer:
        return await asyncio.to_thread(
            exchange,
            method,
            self._url + path,
            body=body,
            timeout_s=_TIMEOUT_S,
            max_bytes=max_bytes,
        )
