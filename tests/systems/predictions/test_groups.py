"""Where the bot works: chats that it may write to, and groups that address it (P-39)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.standins.server import answers
from tests.standins.telegram import TOKEN
from tests.support import clause
from tests.systems.predictions.conftest import MakeTelegramSite
from tests.systems.predictions.site import png
from tests.systems.predictions.telegram_site import TelegramSite

PHOTO = png(70, 40, 90)
BOT_ID = int(TOKEN.partition(":")[0])
GROUP = -100500


def refused(description: str) -> Any:
    body = {"ok": False, "error_code": 400, "description": f"Bad Request: {description}"}
    return answers(400, body)


@clause("P-39")
@pytest.mark.parametrize(
    "description",
    ["not enough rights to send text messages to the chat", "TOPIC_CLOSED", "CHAT_RESTRICTED"],
)
async def test_p39_nothing_is_paid_in_a_chat_that_refuses_texts(
    telegram_site: TelegramSite, description: str
) -> None:
    site = telegram_site
    site.telegram.plan("sendMessage", *[refused(description)] * 9)
    await site.deliver(site.telegram.photo_message(PHOTO))
    await site.recover(passes=2)
    assert site.replicate.predictions == {}
    assert await site.open_tasks() == []
    assert site.telegram.calls == ["sendMessage"]


ADDRESSED: list[dict[str, Any]] = [
    {"caption": "@test_bot as a watercolour"},
    {"caption": "as a watercolour, @Test_Bot"},
    {"reply_to_message": {"message_id": 3, "from": {"id": BOT_ID, "is_bot": True}}},
    {
        "caption": "you there",
        "caption_entities": [{"type": "text_mention", "user": {"id": BOT_ID}}],
    },
    {"caption": "/mode@test_bot"},
]
OTHERS: list[dict[str, Any]] = [
    {},
    {"caption": "holiday"},
    {"caption": "@test_bots or @other_bot, me@test_bot"},
    {"caption": "x", "reply_to_message": {"from": {"id": 5}}},
    {"caption": "x", "caption_entities": [{"type": "text_mention", "user": {"id": 5}}, 7, None]},
    {"caption": "x", "reply_to_message": "y", "caption_entities": "z"},
]


async def send_all(site: TelegramSite, messages: list[dict[str, Any]]) -> list[str]:
    """Send photos into a group; the prompts of those that were processed."""
    for members in messages:
        update = site.telegram.photo_message(PHOTO, chat_id=GROUP, **members)
        update["message"]["chat"]["type"] = "supergroup"
        assert await site.deliver(update) == [200]
    await site.recover()
    given: list[Any] = [each["input"] for each in site.replicate.predictions.values()]
    return [each.get("prompt", "") for each in given]


@clause("P-39")
async def test_p39_in_a_group_the_bot_works_where_it_is_addressed(
    telegram_site: TelegramSite,
) -> None:
    """The bot's own name is no part of the prompt."""
    prompts = await send_all(telegram_site, [*OTHERS, *ADDRESSED])
    assert prompts == ["as a watercolour", "as a watercolour,", "", "you there", "/mode"]
    assert len(telegram_site.telegram.pictures(GROUP)) == len(ADDRESSED)


@clause("P-39")
@pytest.mark.parametrize(("groups", "expected"), [("all", 4), ("never", 0)])
async def test_p39_groups_can_be_all_or_none(
    make_telegram_site: MakeTelegramSite, groups: str, expected: int
) -> None:
    site = make_telegram_site(groups=groups)
    assert len(await send_all(site, [*OTHERS[:2], *ADDRESSED[:2]])) == expected
    await site.deliver(site.telegram.message(text="/mode", chat_id=GROUP, chat_type="group"))
    assert len(site.telegram.texts(GROUP)) == (1 if expected else 0)
    await site.deliver(site.telegram.photo_message(PHOTO))
    await site.recover()
    assert len(site.telegram.pictures(77)) == 1
