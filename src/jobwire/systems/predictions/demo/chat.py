"""The chat of the demo, in memory: what the chat port asks for, and what the page shows."""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from jobwire.systems.predictions.chat import (
    Edited,
    MessageGone,
    PhotoTooLarge,
    Picture,
    Rejected,
    Sent,
)

_MAX_MESSAGES: Final = 100
CHAT_ID: Final = 1


@dataclass(slots=True)
class DemoMessage:
    """One line of the chat."""

    id: int
    author: str
    """`user` or `bot`."""
    text: str = ""
    picture: bytes | None = None
    mime: str = ""
    revision: int = 0


class DemoChat:
    """One chat. The oldest messages are dropped beyond a hundred."""

    def __init__(self) -> None:
        self.messages: OrderedDict[int, DemoMessage] = OrderedDict()
        self.revision = 0
        self._ids = itertools.count(1)
        self._changed = asyncio.Condition()

    async def add(
        self, author: str, text: str, picture: bytes | None = None, mime: str = ""
    ) -> DemoMessage:
        """Add a message."""
        message = DemoMessage(next(self._ids), author, text, picture, mime)
        self.messages[message.id] = message
        while len(self.messages) > _MAX_MESSAGES:
            self.messages.popitem(last=False)
        await self._touch(message)
        return message

    async def wait_for_change(self, seen: int, timeout_s: float) -> None:
        """Wait until there is something newer than the revision `seen`."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: self.revision > seen)
        except TimeoutError:
            return

    async def fetch_photo(self, file_id: str, max_bytes: int) -> bytes | PhotoTooLarge | Rejected:
        """The user's photo."""
        message = self.messages.get(int(file_id))
        if message is None or message.picture is None:
            return Rejected("no such photo")
        return PhotoTooLarge() if len(message.picture) > max_bytes else message.picture

    async def answers(self) -> None:
        """It does."""

    async def send_text(self, chat_id: int, text: str, reply_to: int | None) -> Sent:  # noqa: ARG002 - the port's
        """A text of the bot."""
        return Sent((await self.add("bot", text)).id)

    async def edit_text(self, chat_id: int, message_id: int, text: str) -> Edited | MessageGone:  # noqa: ARG002 - the port's
        """Replace a message of the bot by a text."""
        return await self._edit(message_id, text, None, "")

    async def edit_picture(
        self,
        chat_id: int,  # noqa: ARG002 - the port's
        message_id: int,
        picture: Picture,
        mime: str,
    ) -> Edited | MessageGone:
        """Replace a message of the bot by a picture."""
        return await self._edit(message_id, "", bytes(picture), mime)

    async def _edit(
        self, message_id: int, text: str, picture: bytes | None, mime: str
    ) -> Edited | MessageGone:
        message = self.messages.get(message_id)
        if message is None:
            return MessageGone()
        message.text, message.picture, message.mime = text, picture, mime
        await self._touch(message)
        return Edited()

    async def _touch(self, message: DemoMessage) -> None:
        async with self._changed:
            self.revision += 1
            message.revision = self.revision
            self._changed.notify_all()
