"""The chat port over Telegram's Bot API (P-17).

A refusal of Telegram is distinguished from no answer, because only the first is safe to repeat. A
group that became a supergroup is followed to its new id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from jobwire.systems.predictions.chat import (
    Blocked,
    Edited,
    Later,
    MessageGone,
    PhotoTooLarge,
    Picture,
    Rejected,
    Sent,
)
from jobwire.systems.predictions.contract import EXTENSIONS
from jobwire.systems.predictions.http_client import NoAnswer
from jobwire.systems.predictions.json_values import integer, mapping
from jobwire.systems.predictions.telegram.api import (
    ApiRefusal,
    ApiResult,
    AttachedFile,
    BotApi,
)

MAX_PHOTO_BYTES: Final = 10 * 1024 * 1024
"""The largest picture that Telegram shows as a photo; a larger one goes as a file."""
LONGEST_TEXT: Final = 4096
_DEFAULT_WAIT_S: Final = 5.0

_NotDone = Blocked | Later | NoAnswer | Rejected | MessageGone


class TelegramChat:
    """The chats of one bot."""

    def __init__(self, api: BotApi) -> None:
        self._api = api

    async def fetch_photo(
        self, file_id: str, max_bytes: int
    ) -> Picture | PhotoTooLarge | Rejected | Later | NoAnswer:
        """Download a photo. Telegram itself hands out files of at most 20 MB."""
        answer = await self._api.call("getFile", {"file_id": file_id})
        if isinstance(answer, NoAnswer):
            return answer
        if isinstance(answer, ApiRefusal):
            if answer.says("too big"):
                return PhotoTooLarge()
            meaning = _meaning(answer)
            return meaning if isinstance(meaning, Rejected | Later | NoAnswer) else _refused(answer)
        path, size = (mapping(answer.value).get(name) for name in ("file_path", "file_size"))
        if isinstance(size, int) and size > max_bytes:
            return PhotoTooLarge()
        if not isinstance(path, str):
            return Rejected("the file has no path")
        file = await self._api.download(path, max_bytes)
        if isinstance(file, NoAnswer):
            return PhotoTooLarge() if file.too_large else file
        if file.status == 200:
            return file.body
        gone = 400 <= file.status < 500 and file.status != 429
        reason = f"the file was answered {file.status}"
        return Rejected(reason) if gone else NoAnswer(reason)

    async def answers(self) -> NoAnswer | None:
        """Ask for the bot's own account."""
        answer = await self._api.call("getMe")
        return answer if isinstance(answer, NoAnswer) else None

    async def send_text(
        self, chat_id: int, text: str, reply_to: int | None
    ) -> Sent | Blocked | Later | NoAnswer | Rejected:
        """Send a text, as a reply where the message still exists."""
        params: dict[str, object] = {"text": text[:LONGEST_TEXT]}
        if reply_to is not None:
            params["reply_parameters"] = {
                "message_id": reply_to,
                "allow_sending_without_reply": True,
            }
        answer = await self._call("sendMessage", chat_id, params)
        if isinstance(answer, ApiResult):
            message_id = integer(mapping(answer.value).get("message_id"))
            return NoAnswer("no message id") if message_id is None else Sent(message_id)
        return Rejected("no such message") if isinstance(answer, MessageGone) else answer

    async def edit_text(
        self, chat_id: int, message_id: int, text: str
    ) -> Edited | MessageGone | Blocked | Later | NoAnswer | Rejected:
        """Replace the content of a message of ours by a text."""
        params: dict[str, object] = {"message_id": message_id, "text": text[:LONGEST_TEXT]}
        answer = await self._call("editMessageText", chat_id, params)
        return Edited() if isinstance(answer, ApiResult) else answer

    async def edit_picture(
        self, chat_id: int, message_id: int, picture: Picture, mime: str
    ) -> Edited | MessageGone | Blocked | Later | NoAnswer | Rejected:
        """Replace the content of a message of ours by a picture, or by a file with it."""
        kinds = ("photo", "document") if len(picture) <= MAX_PHOTO_BYTES else ("document",)
        upload = AttachedFile(
            f"result.{EXTENSIONS.get(mime, 'jpg')}", mime or "image/jpeg", picture
        )
        answer: ApiResult | _NotDone = Rejected("no kind fits")
        for kind in kinds:
            media = {"type": kind, "media": "attach://file"}
            params: dict[str, object] = {"message_id": message_id, "media": media}
            answer = await self._call("editMessageMedia", chat_id, params, upload)
            # Too wide, too high, or no photo for Telegram: a file has no such limits.
            if not isinstance(answer, Rejected):
                break
        return Edited() if isinstance(answer, ApiResult) else answer

    async def _call(
        self,
        method: str,
        chat_id: int,
        params: Mapping[str, object],
        upload: AttachedFile | None = None,
    ) -> ApiResult | _NotDone:
        answer = await self._api.call(method, {"chat_id": chat_id, **params}, upload=upload)
        if isinstance(answer, ApiRefusal) and answer.migrated_to is not None:
            moved = {"chat_id": answer.migrated_to, **params}
            answer = await self._api.call(method, moved, upload=upload)
        if isinstance(answer, NoAnswer | ApiResult):
            return answer
        if answer.says("message is not modified"):
            return ApiResult(None)
        return _meaning(answer)


def _meaning(refusal: ApiRefusal) -> _NotDone:
    """What a refusal means for the flow."""
    if refusal.code == 429:
        return Later(_DEFAULT_WAIT_S if refusal.retry_after_s is None else refusal.retry_after_s)
    if refusal.code in (401, 404):
        # The token is wrong or the bot is being moved: nothing about this task.
        reason = f"Telegram answered {refusal.code}: is the bot's token right?"
        return NoAnswer(reason, not_done=True)
    if refusal.code == 403 or refusal.says("chat not found", "chat_write_forbidden", "kicked"):
        return Blocked()
    if refusal.says("message to edit not found", "message can't be edited", "message_id_invalid"):
        return MessageGone()
    return _refused(refusal)


def _refused(refusal: ApiRefusal) -> Rejected:
    return Rejected(f"Telegram answered {refusal.code}: {refusal.description}")
