"""What the chat side must offer (P-17): fetch a photo, send a text, edit a message.

Sending cannot be repeated safely, editing can. So a picture is only ever placed by editing a text
message of ours; there is no call here that sends a picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from jobwire.systems.predictions.http_client import NoAnswer

Picture = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Sent:
    """The message is in the chat."""

    message_id: int


@dataclass(frozen=True, slots=True)
class Edited:
    """The message has the new content, or had it already."""


@dataclass(frozen=True, slots=True)
class MessageGone:
    """There is no such message any more."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """The user blocked the bot, or the chat is gone: nothing will ever be delivered."""


@dataclass(frozen=True, slots=True)
class Later:
    """Not done; the chat asks to wait."""

    after_s: float


@dataclass(frozen=True, slots=True)
class Rejected:
    """The chat does not take this content, now or later."""

    reason: str


@dataclass(frozen=True, slots=True)
class PhotoTooLarge:
    """The photo is larger than the limit; the download was cut off."""


class Chat(Protocol):
    """One chat service. No call raises for what the service answers."""

    async def fetch_photo(
        self, file_id: str, max_bytes: int
    ) -> Picture | PhotoTooLarge | Rejected | Later | NoAnswer:
        """Download a photo; cut it off above the limit."""
        ...

    async def answers(self) -> NoAnswer | None:
        """Whether the service answers now; changes nothing."""
        ...

    async def send_text(
        self, chat_id: int, text: str, reply_to: int | None
    ) -> Sent | Blocked | Later | NoAnswer | Rejected:
        """Send a text, as a reply where the message still exists."""
        ...

    async def edit_text(
        self, chat_id: int, message_id: int, text: str
    ) -> Edited | MessageGone | Blocked | Later | NoAnswer | Rejected:
        """Replace the content of a message of ours by a text."""
        ...

    async def edit_picture(
        self, chat_id: int, message_id: int, picture: Picture, mime: str
    ) -> Edited | MessageGone | Blocked | Later | NoAnswer | Rejected:
        """Replace the content of a message of ours by a picture."""
        ...
