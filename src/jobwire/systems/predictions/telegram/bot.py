"""Takes updates of Telegram: a photo goes to the flow, anything else is answered by a text.

Called by the webhook (`handle_update`) and by the poller. An update is done when the photo's
intent is recorded; only a store that does not answer makes Telegram send it again.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Mapping
from typing import Final

from jobwire.objects import ObjectsError
from jobwire.systems.predictions import texts
from jobwire.systems.predictions.contract import TaskErrorCode
from jobwire.systems.predictions.flow import Flow
from jobwire.systems.predictions.intent import Photo
from jobwire.systems.predictions.json_values import mapping, parse, text
from jobwire.systems.predictions.records import BadIntent
from jobwire.systems.predictions.telegram.api import ApiResult, BotApi
from jobwire.systems.predictions.telegram.updates import (
    GroupPhoto,
    OtherUpdate,
    Skip,
    TextUpdate,
    read_update,
)
from jobwire.systems.predictions.webhook import Answer

log: Final = logging.getLogger("jobwire.predictions")

SECRET_HEADER: Final = "x-telegram-bot-api-secret-token"  # noqa: S105 - the name of a header
MAX_UPDATE_BYTES: Final = 1024 * 1024


class TelegramBot:
    """One bot: its flow and its API."""

    def __init__(self, flow: Flow, api: BotApi) -> None:
        self.flow = flow
        self.api = api
        self._name: str | None = None
        self._id = int(api.bot_id) if api.bot_id.isdecimal() else 0

    async def take(self, update: object) -> None:
        """Take one update; ObjectsError if its photo could not be recorded."""
        photo = await self.photo_in(update)
        if photo is None:
            await self.answer(update)
            return
        try:
            await self.flow.submit(photo)
        except BadIntent as error:
            # The same object again at every redelivery: an operator has to look at it.
            log.error("photo skipped error=%(error)s", {"error": error})

    async def photo_in(self, update: object) -> Photo | None:
        """The photo that an update wants to be processed, if it does."""
        match read_update(update):
            case Photo() as photo:
                self.flow.deps.counts.add("updates", "photo")
                return photo
            case GroupPhoto() as sent:
                return await self._photo_for_us(sent)
            case _:
                return None

    async def answer(self, update: object) -> None:
        """Answer an update without a photo; never raises for what is in it."""
        match read_update(update):
            case TextUpdate(private=False) if self.flow.deps.groups == "never":
                self._skip("it comes from a group")
            case TextUpdate() as asked:
                own_name = await self._own_name() if asked.addressee else ""
                if asked.addressee == own_name:
                    self.flow.deps.counts.add("updates", "text")
                    await self._answer(asked.chat_id, asked.message_id, self._reply_text(asked))
            case OtherUpdate(chat_id, message_id, language, kind):
                self.flow.deps.counts.add("updates", "other")
                log.info(
                    "message without a photo kind=%(kind)s chat_id=%(chat_id)s",
                    {"kind": kind, "chat_id": chat_id},
                )
                limit_mb = self.flow.deps.max_image_mb
                words = texts.error(TaskErrorCode.NOT_A_PHOTO, language, limit_mb=limit_mb)
                await self._answer(chat_id, message_id, words)
            case Skip(reason):
                self._skip(reason)
            case GroupPhoto():
                self._skip("it is a photo in a group that is not for the bot")
            case Photo():
                pass

    async def _photo_for_us(self, sent: GroupPhoto) -> Photo | None:
        """P-39: in a group, most photos are not for the bot."""
        groups = self.flow.deps.groups
        name = await self._own_name() if sent.names and groups != "never" else ""
        addressed = name in sent.names or self._id in sent.ids
        if groups == "all" or (groups == "addressed" and addressed):
            self.flow.deps.counts.add("updates", "photo")
            return sent.addressed_to(name)
        return None

    def _skip(self, reason: str) -> None:
        self.flow.deps.counts.add("updates", "skipped")
        log.info("update skipped reason=%(reason)s", {"reason": reason})

    def _reply_text(self, asked: TextUpdate) -> str:
        deps = self.flow.deps
        if asked.command == "mode":
            return texts.mode(asked.language, deps.provider.model)
        return texts.help_text(asked.language, limit_mb=deps.max_image_mb)

    async def _answer(self, chat_id: int, message_id: int, words: str) -> None:
        """A lost answer is not repeated: the user asks again."""
        answer = await self.flow.deps.chat.send_text(chat_id, words, message_id)
        log.debug(
            "text answered answer=%(answer)s chat_id=%(chat_id)s",
            {"answer": type(answer).__name__, "chat_id": chat_id},
        )

    async def _own_name(self) -> str:
        """The bot's user name in lower case; asked for once, when a name is to be compared."""
        if self._name is None:
            answer = await self.api.call("getMe")
            if isinstance(answer, ApiResult):
                self._name = text(mapping(answer.value).get("username")).lower()
        return self._name or ""


async def handle_update(
    bot: TelegramBot, secret: str, headers: Mapping[str, str], body: bytes
) -> Answer:
    """Take one update by webhook: its secret, then its body (P-30)."""
    if not is_telegram(bot, secret, headers):
        log.warning("update refused: the secret does not match")
        return Answer(401, "the secret does not match")
    if len(body) > MAX_UPDATE_BYTES:
        return Answer(413, "the body is too large")
    return await take_body(bot, body)


def is_telegram(bot: TelegramBot, secret: str, headers: Mapping[str, str]) -> bool:
    """Whether a request carries the secret that only Telegram knows."""
    given = next((text for name, text in headers.items() if name.lower() == SECRET_HEADER), "")
    if secret and hmac.compare_digest(secret.encode(), given.encode()):
        return True
    bot.flow.deps.counts.add("updates", "refused")
    return False


async def take_body(bot: TelegramBot, body: bytes) -> Answer:
    """Take an update that Telegram sent.

    200 also for an update that cannot be understood: Telegram would send it again and again.
    """
    try:
        update: object = parse(body)
    except ValueError:
        bot.flow.deps.counts.add("updates", "skipped")
        log.warning("update skipped: it is not JSON")
        return Answer(200, "skipped")
    try:
        await bot.take(update)
    except ObjectsError as error:
        log.error("update not recorded error=%(error)s", {"error": error})
        return Answer(503, "not recorded, send it again")
    return Answer(200, "taken")
