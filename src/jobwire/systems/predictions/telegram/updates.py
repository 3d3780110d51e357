"""An update of Telegram to what it asks for (P-24, P-33). Pure.

Members are checked one by one: an update may come from a newer API or be malformed. Whatever is
not understood is skipped with a reason; nothing here raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

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
_MAX_ENTITIES: Final = 100
# `@name`, also behind a command; not the end of an address.
_MENTION: Final = re.compile(r"(?:(?<![\w.+-])|(?<=^/start)|(?<=^/help)|(?<=^/mode))@(\w{4,32})\b")
_MAX_INT: Final = 2**52  # Telegram's ids have at most 52 significant bits


@dataclass(frozen=True, slots=True)
class GroupPhoto:
    """A photo in a group, and whom its message addresses."""

    photo: Photo
    names: frozenset[str]
    """User names after an `@`, in lower case."""
    ids: frozenset[int]
    """The author of the message that it replies to, and users that are mentioned without a name."""

    def addressed_to(self, name: str) -> Photo:
        """The photo; its prompt is the caption without that name."""
        rest = re.sub(f"@{re.escape(name)}\\b", "", self.photo.caption, flags=re.IGNORECASE)
        return replace(self.photo, caption=rest.strip()) if name else self.photo


@dataclass(frozen=True, slots=True)
class TextUpdate:
    """A command or another text; `command` has no slash and may be empty."""

    chat_id: int
    message_id: int
    language: str
    command: str = ""
    addressee: str = ""
    """The bot's name after the `@` of a command in a group."""
    private: bool = True


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


def read_update(update: object) -> Photo | GroupPhoto | TextUpdate | OtherUpdate | Skip:
    """What an update asks for; a photo is to be processed, one in a group if it is for us."""
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
    private = chat.get("type") == "private"
    if file is not None:
        photo = Photo(
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
        return photo if private else _group_photo(photo, message)
    text = text_of(message.get("text"))
    if text.startswith("/"):
        name, _, addressee = text.split(maxsplit=1)[0][1:].partition("@")
        if not private and name.lower() not in COMMANDS:
            return Skip("it is a command for another bot, in a group")
        return TextUpdate(chat_id, message_id, language, name.lower(), addressee.lower(), private)
    if not private:
        return Skip("it is not a photo, in a group")
    if text:
        return TextUpdate(chat_id, message_id, language)
    for kind in _OTHER_CONTENT:
        if kind in message:
            return OtherUpdate(chat_id, message_id, language, kind)
    return Skip("its message has no content that the bot knows")


def _group_photo(photo: Photo, message: Mapping[str, object]) -> GroupPhoto:
    entities = map(mapping, items(message.get("caption_entities"))[:_MAX_ENTITIES])
    mentioned = [mapping(each.get("user")) for each in entities]
    replied_to = mapping(mapping(message.get("reply_to_message")).get("from"))
    ids = (_integer(each.get("id")) for each in (replied_to, *mentioned))
    return GroupPhoto(
        photo,
        frozenset(name.lower() for name in _MENTION.findall(photo.caption)),
        frozenset(each for each in ids if each is not None),
    )


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
