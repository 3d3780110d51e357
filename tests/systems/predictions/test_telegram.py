"""The bot in Telegram: from an update to a picture in the chat, and Telegram's answers."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from jobwire.objects import BucketConfig
from jobwire.systems.predictions import texts
from jobwire.systems.predictions.contract import TaskErrorCode
from jobwire.systems.predictions.reconcile import reconcile
from jobwire.systems.predictions.telegram.bot import handle_update
from tests.standins.server import answers
from tests.standins.telegram import MAX_PHOTO, SECRET, TOKEN, flood
from tests.support import clause
from tests.support.s3_proxy import dropped, stored_but_dropped
from tests.systems.predictions.conftest import MakeTelegramSite
from tests.systems.predictions.site import png
from tests.systems.predictions.telegram_site import TelegramSite

PHOTO = png(200, 40, 90)


@clause("P-13", "P-14", "P-17", "P-24")
async def test_p13_a_photo_sent_to_the_bot_becomes_the_models_picture(
    make_telegram_site: MakeTelegramSite, seaweedfs: BucketConfig
) -> None:
    """The whole flow by webhook, on the bundled S3 server and the real cog."""
    site = make_telegram_site(seaweedfs)
    update = site.telegram.photo_message(PHOTO, caption="as a watercolour")
    assert await site.deliver(update) == [200]
    await site.closed()
    (message,) = site.telegram.in_chat(77)
    assert message.kind == "photo"
    assert message.picture.startswith(b"\x89PNG")
    assert message.reply_to == update["message"]["message_id"]
    (prediction,) = site.replicate.predictions.values()
    given: Any = prediction["input"]
    assert given["prompt"] == "as a watercolour"
    assert TOKEN not in json.dumps(prediction)
    task = await site.task(str(prediction["id"]))
    assert task is not None
    assert (task["chat_id"], task["status"]) == (77, "succeeded")
    assert task["telegram"]["file_id"] == update["message"]["photo"][-1]["file_id"]
    assert "sendPhoto" not in site.telegram.calls


@clause("P-13")
async def test_p13_an_update_delivered_six_times_at_once_is_one_picture(
    telegram_site: TelegramSite,
) -> None:
    site = telegram_site
    update = site.telegram.photo_message(PHOTO)
    statuses = await asyncio.gather(*(site.deliver(update) for _ in range(6)))
    assert statuses == [[200]] * 6
    await site.recover()
    assert len(site.telegram.pictures(77)) == 1
    assert len(site.replicate.predictions) == 1


@clause("P-30")
async def test_p30_an_update_without_telegrams_secret_is_refused(
    telegram_site: TelegramSite,
) -> None:
    site = telegram_site
    body = json.dumps(site.telegram.photo_message(PHOTO)).encode()
    for secret in ("", "wrong", SECRET[:-1], SECRET + "x", "Ж"):
        headers = {"X-TELEGRAM-BOT-API-SECRET-TOKEN": secret} if secret else {}
        assert (await handle_update(site.bot, SECRET, headers, body)).status == 401
        # A bot without a secret refuses every request.
        assert (await handle_update(site.bot, "", headers, body)).status == 401
    assert await site.open_tasks() == []
    assert site.telegram.calls == []


@clause("P-24")
@pytest.mark.parametrize("language", ["en", "ru"])
async def test_p24_commands_are_answered_in_the_users_language(
    telegram_site: TelegramSite, language: str
) -> None:
    site = telegram_site
    for text in ("/start", "/help now", "hello?", "/mode"):
        await site.deliver(site.telegram.message(text=text, language=language))
    helped = texts.help_text(language, limit_mb=10)
    model = texts.mode(language, "test/invert")
    assert site.telegram.texts(77) == [helped, helped, helped, model]
    assert "test/invert" in model


@clause("P-24")
async def test_p24_in_a_group_only_commands_for_this_bot_are_answered(
    telegram_site: TelegramSite,
) -> None:
    site = telegram_site
    for text in ("hello", "/other", "/help@some_bot", "/mode@test_BOT"):
        update = site.telegram.message(text=text, chat_id=-100, chat_type="supergroup")
        assert await site.deliver(update) == [200]
    assert site.telegram.texts(-100) == [texts.mode("en", "test/invert")]


NOT_A_PHOTO = texts.error(TaskErrorCode.NOT_A_PHOTO, "en", limit_mb=10)
MESSAGE: dict[str, Any] = {
    "message_id": 5,
    "date": 1_769_000_000,
    "chat": {"id": 77, "type": "private"},
    "photo": [{"file_id": "AgAC0", "width": 9, "height": 9}],
}


UPDATES: list[tuple[Any, str | None]] = [
    ({"message": {"sticker": {"file_id": "x"}}}, NOT_A_PHOTO),
    ({"message": {"voice": {"file_id": "x"}}}, NOT_A_PHOTO),
    ({"message": {"video": {"file_id": "x"}}}, NOT_A_PHOTO),
    (
        {"message": {"document": {"file_id": "x", "mime_type": "application/pdf"}}},
        NOT_A_PHOTO,
    ),
    ({"message": {"document": {"mime_type": "image/png"}}}, NOT_A_PHOTO),
    ({"message": {"photo": []}}, NOT_A_PHOTO),
    ({"message": {"photo": [{"width": 3}, None, 5]}}, NOT_A_PHOTO),
    ({"message": {"photo": {"file_id": "x"}}}, NOT_A_PHOTO),
    ({"message": {"new_chat_title": "x"}}, None),
    ({"edited_message": MESSAGE}, None),
    ({"channel_post": MESSAGE}, None),
    ({"message": MESSAGE | {"from": {"id": 5, "is_bot": True}}}, None),
    ({"message": MESSAGE | {"chat": {"id": "77"}}}, None),
    ({"message": MESSAGE | {"chat": {"id": 2**60}}}, None),
    ({"message": MESSAGE | {"message_id": True}}, None),
    ({"message": MESSAGE | {"date": 2**40}}, None),
    ({"message": "text"}, None),
    ({"inline_query": {}}, None),
    ([1, 2], None),
    (b"{not JSON", None),
    (b"[" * 100_000, None),
    (b"\xff\xfe", None),
]


@clause("P-33")
async def test_p33_an_update_without_a_photo_is_answered_or_skipped(
    telegram_site: TelegramSite,
) -> None:
    site = telegram_site
    for update, answer in UPDATES:
        sent = site.telegram.message(**update["message"]) if answer else update
        assert await site.deliver(sent) == [200], update
        assert site.telegram.texts(77) == ([answer] if answer else []), update
        site.telegram.messages.clear()
    assert await site.open_tasks() == []
    assert site.replicate.predictions == {}


FILES: list[tuple[bytes, dict[str, Any], TaskErrorCode | None]] = [
    (PHOTO, {"mime_type": "image/png", "file_name": "a.png"}, None),
    (PHOTO, {"mime_type": "application/octet-stream", "file_name": "A.PNG"}, None),
    (b"%PDF-1.7", {"mime_type": "image/png"}, TaskErrorCode.NOT_A_PHOTO),
    (b"RIFF....WEBPVP8 ", {"mime_type": "image/webp"}, TaskErrorCode.NOT_A_PHOTO),
    (PHOTO, {"mime_type": "image/png", "file_size": 11 << 20}, TaskErrorCode.TOO_LARGE),
    (PHOTO + b"\0" * (11 << 20), {"mime_type": "image/png"}, TaskErrorCode.TOO_LARGE),
    (b"\0" * (21 << 20), {"mime_type": "image/png"}, TaskErrorCode.TOO_LARGE),
]


@clause("P-2", "P-33")
async def test_p2_a_photo_sent_as_a_file_counts_by_its_content(
    telegram_site: TelegramSite,
) -> None:
    site = telegram_site
    for chat_id, (body, claims, _) in enumerate(FILES, 1):
        document = {"file_id": site.telegram.store(body), **claims}
        update = site.telegram.message(document=document, chat_id=chat_id)
        assert await site.deliver(update) == [200]
    await site.recover()
    for chat_id, (_, _, code) in enumerate(FILES, 1):
        assert len(site.telegram.pictures(chat_id)) == (code is None)
        words = [] if code is None else [texts.error(code, "en", limit_mb=10)]
        assert site.telegram.texts(chat_id) == words


@clause("P-18", "P-19", "P-24")
async def test_p18_an_album_is_a_task_for_each_photo_up_to_its_limit(
    make_telegram_site: MakeTelegramSite,
) -> None:
    """The caption of the first is the prompt of all; one message names the limit."""
    site = make_telegram_site(max_album=2)
    album = [
        site.telegram.photo_message(PHOTO, media_group_id="g1", language="ru") for _ in range(4)
    ]
    album[0]["message"]["caption"] = "in blue"
    for update in (*album, album[2], album[3]):
        assert await site.deliver(update) == [200]
    await site.recover()
    prompts = [each["input"]["prompt"] for each in site.replicate.predictions.values()]  # pyright: ignore[reportIndexIssue, reportUnknownVariableType] - JSON
    assert prompts == ["in blue", "in blue"]
    assert len(site.telegram.pictures(77)) == 2
    limit = texts.error(TaskErrorCode.TOO_MANY_IN_ALBUM, "ru", limit_mb=10)
    assert site.telegram.texts(77) == [limit]
    # Another album is counted by itself.
    await site.deliver(site.telegram.photo_message(PHOTO, media_group_id="g2"))
    await site.recover()
    assert len(site.telegram.pictures(77)) == 3


@clause("P-17")
async def test_p17_telegrams_retry_after_is_waited_for(telegram_site: TelegramSite) -> None:
    site = telegram_site
    site.telegram.plan("getFile", flood(40))
    site.telegram.plan("editMessageMedia", flood(900))
    await site.deliver(site.telegram.photo_message(PHOTO))
    assert site.replicate.predictions == {}
    site.clock.shift_s += 30
    await reconcile(site.flow)
    assert site.telegram.calls.count("getFile") == 1
    site.clock.shift_s += 20
    await reconcile(site.flow)
    await asyncio.to_thread(site.replicate.wait_idle)
    assert site.telegram.calls.count("editMessageMedia") == 1
    site.clock.shift_s += 800
    await reconcile(site.flow)
    assert site.telegram.calls.count("editMessageMedia") == 1
    assert await site.open_tasks() != []
    site.clock.shift_s += 200
    await reconcile(site.flow)
    assert await site.open_tasks() == []
    assert len(site.telegram.pictures(77)) == 1


@clause("P-17")
async def test_p17_an_edit_whose_answer_was_lost_is_repeated(telegram_site: TelegramSite) -> None:
    """Telegram answers the repetition with "message is not modified", which is success."""
    site = telegram_site
    site.telegram.plan("editMessageMedia", stored_but_dropped)
    await site.deliver(site.telegram.photo_message(PHOTO))
    await site.recover()
    assert site.telegram.calls.count("editMessageMedia") == 2
    assert len(site.telegram.pictures(77)) == 1
    assert site.telegram.texts(77) == []


@clause("P-17")
async def test_p17_a_placeholder_that_the_user_deleted_is_sent_again(
    telegram_site: TelegramSite,
) -> None:
    site = telegram_site
    site.replicate.webhooks = "never"
    await site.deliver(site.telegram.photo_message(PHOTO))
    site.telegram.messages.clear()
    await site.recover()
    (message,) = site.telegram.in_chat(77)
    assert message.kind == "photo"


@clause("P-17")
async def test_p17_a_picture_that_telegram_refuses_as_a_photo_is_sent_as_a_file(
    telegram_site: TelegramSite,
) -> None:
    """Too wide, as Telegram answers; too large, as the bot checks itself."""
    site = telegram_site
    await site.deliver(site.telegram.photo_message(png(1, 2, 3, width=300, height=4)))
    await site.closed()
    (message,) = site.telegram.in_chat(77)
    assert message.kind == "document"
    heavy = PHOTO + b"\0" * MAX_PHOTO
    await site.flow.deps.chat.edit_picture(77, message.message_id, heavy, "image/png")
    assert (message.kind, message.picture) == ("document", heavy)


@clause("P-33")
async def test_p33_a_user_who_blocked_the_bot_ends_the_task(telegram_site: TelegramSite) -> None:
    site = telegram_site
    site.telegram.blocked.add(77)
    assert await site.deliver(site.telegram.photo_message(PHOTO)) == [200]
    assert await site.deliver(site.telegram.message(text="/help")) == [200]
    await site.recover()
    assert await site.open_tasks() == []
    assert site.replicate.predictions == {}


@clause("P-33")
async def test_p33_a_group_that_became_a_supergroup_is_followed(
    telegram_site: TelegramSite,
) -> None:
    site = telegram_site
    site.replicate.webhooks = "never"
    await site.deliver(site.telegram.photo_message(PHOTO, chat_id=-55))
    site.telegram.migrated[-55] = -10055
    await site.recover()
    assert len(site.telegram.pictures(-10055)) == 1


@clause("P-25", "P-31")
async def test_p25_the_bots_token_is_in_no_log_line_and_no_object(
    telegram_site: TelegramSite, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    site = telegram_site
    site.telegram.plan("sendMessage", dropped, answers(500), answers(401))
    site.telegram.plan("getFile", dropped, answers(502))
    site.telegram.plan("file", dropped, answers(500))
    site.telegram.plan("editMessageMedia", dropped, answers(500))
    await site.deliver(site.telegram.photo_message(PHOTO), times=2)
    await site.deliver(site.telegram.photo_message(PHOTO), secret="wrong")
    await site.recover(passes=16)
    assert len(site.telegram.pictures(77)) == 1
    assert caplog.text
    for hidden in (TOKEN, TOKEN.partition(":")[2], SECRET):
        assert hidden not in caplog.text
        async for entry in site.bucket.list(""):
            found: Any = await site.bucket.get(entry.key)
            assert hidden.encode() not in found.body
