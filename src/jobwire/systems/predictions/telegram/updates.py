"""An update of Telegram to what it asks for (P-24, P-33). Pure.

Members are checked one by one: an update may come from a newer API or be malformed. Whatever is
not understood is skipped with a reason; nothing here raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from jobwire.systems.predictions.intent import Photo
from jobwire.systems.predictions.json_values import integer, items, mapping
from jobwire.systems.predictions.json_values import text as text_of

_IMAGE_NAMES: Final = (".jpg", ".jpeg", ".png")
# Content of a message that is not a photo, and that a user may have sent in place of one.
_OTHER_CONTENT: Final = (
    *("animation", "audio", "contact", "dice", "document", "game", "location", "paid_media"),
    *("photo", "poll", "sticker", "story", "venue", "video", "video_note", "voice"),
)
COMMANDS: Final = ("start", "help", "mode")
_LONGEST_ID: Final = 256
_MAX_INT: Final = 2**52  # Telegram's ids have at most 52 significant bits


@dataclass(frozen=True, slots=True)
class TextUpdate:
    """A command or another text; `command` has no slash and may be empty."""

    chat_id: int
    message_id: int
    language: str
    command: str = ""
    addressee: str = ""
    """The bot's name after the `@` of a command in a group."""


@dataclass(frozen=True, slots=True)
class OtherUpdate:
    """A message whose content is not a photo."""

    chat_id: int
    message_id: int
    language: str
    kind: str


@dataclass(frozen=True, slots=True)
class Skip:
    """Nothing for the bot; the reason goes to the log."""

    reason: str


def read_update(update: object) -> Photo | TextUpdate | OtherUpdate | Skip:
    """What an update asks for; a photo is to be processed."""
    given = mapping(update)
    message = mapping(given.get("message"))
    if not message:
        kinds = sorted(name for name in given if name != "update_id")
        return Skip(f"it holds no message but {', '.join(kinds)[:100] or 'nothing'}")
    chat, sender = mapping(message.get("chat")), mapping(message.get("from"))
    chat_id = _integer(chat.get("id"))
    message_id, date_s = _integer(message.get("message_id")), _integer(message.get("date"))
    if chat_id is None or not message_id or message_id < 0:
        return Skip("its message has no chat or no id")
    if date_s is None or not 0 < date_s < 2**32:
        return Skip("its message has no date")
    if sender.get("is_bot") is True:
        return Skip("it comes from a bot")
    language = text_of(sender.get("language_code"))[:16]
    file = _largest(message.get("photo")) or _picture_document(message.get("document"))
    if file is not None:
        return Photo(
            chat_id=chat_id,
            user_id=_integer(sender.get("id")) or chat_id,
            message_id=message_id,
            file_id=text_of(file.get("file_id")),
            date_s=date_s,
            size=_integer(file.get("file_size")),
            caption=text_of(message.get("caption")),
            language=language,
            album=text_of(message.get("media_group_id"))[:64],
        )
    private = chat.get("type") == "private"
    text = text_of(message.get("text"))
    if text.startswith("/"):
        name, _, addressee = text.split(maxsplit=1)[0][1:].partition("@")
        if not private and name.lower() not in COMMANDS:
            return Skip("it is a command for another bot, in a group")
        return TextUpdate(chat_id, message_id, language, name.lower(), addressee.lower())
    if not private:
        return Skip("it is not a photo, in a group")
    if text:
        return TextUpdate(chat_id, message_id, language)
    for kind in _OTHER_CONTENT:
        if kind in message:
            return OtherUpdate(chat_id, message_id, language, kind)
    return Skip("its message has no content that the bot knows")


def _largest(sizes: object) -> Mapping[str, object] | None:
    """The largest size of a photo; Telegram sends several of one picture."""
    found: list[tuple[int, Mapping[str, object]]] = []
    for size in map(mapping, items(sizes)):
        if _has_file(size):
            area = (_integer(size.get("width")) or 0) * (_integer(size.get("height")) or 0)
            found.append((area, size))
    return max(found, key=lambda each: each[0])[1] if found else None


def _picture_document(document: object) -> Mapping[str, object] | None:
    """A photo that was sent as a file, as far as its sender claims; the content decides later."""
    given = mapping(document)
    if not _has_file(given):
        return None
    named = text_of(given.get("file_name")).lower().endswith(_IMAGE_NAMES)
    return given if named or text_of(given.get("mime_type")).startswith("image/") else None


def _has_file(given: Mapping[str, object]) -> bool:
    return 0 < len(text_of(given.get("file_id"))) <= _LONGEST_ID


def _integer(value: object) -> int | None:
    return integer(value, _MAX_INT)
