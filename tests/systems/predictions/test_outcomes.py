"""Ends of a task without a picture, and the texts for the user (P-18)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from jobwire.systems.predictions import fetch, texts
from jobwire.systems.predictions.contract import MAX_OUTPUT_BYTES, TaskErrorCode, user_key
from jobwire.systems.predictions.intent import Photo
from jobwire.systems.predictions.reconcile import reconcile
from tests.standins.server import answers
from tests.support import clause, wait_until
from tests.support.s3 import boto_client
from tests.support.s3_proxy import stored_but_dropped
from tests.systems.predictions.conftest import MakeSite
from tests.systems.predictions.site import Site, build_flow, png


def words(code: TaskErrorCode, language: str = "en") -> str:
    return texts.error(code, language, limit_mb=10)


async def run(site: Site, photo: Photo) -> dict[str, Any] | None:
    """Submit, let time pass until no task is open; the task object, if there is one."""
    await site.flow.submit(photo)
    await site.recover(passes=16, step_s=400)
    assert await site.open_tasks() == []
    assert site.chat.pictures(photo.chat_id) == []
    paid = site.paid(photo)
    return await site.task(str(paid[0]["id"])) if paid else None


@clause("P-2", "P-18")
async def test_p2_a_photo_that_claims_to_be_too_large_is_not_downloaded(site: Site) -> None:
    photo = site.photo(size=10 * 1024 * 1024 + 1)
    assert await run(site, photo) is None
    assert "file" not in site.chat.calls
    assert site.chat.texts(photo.chat_id) == [words(TaskErrorCode.TOO_LARGE)]


@clause("P-2", "P-18")
async def test_p2_a_photo_is_cut_off_while_it_streams(make_site: MakeSite) -> None:
    site = make_site(max_image_mb=1)
    photo, fits = site.photo(size=5, language="ru-RU"), site.photo()
    site.chat.files[photo.file_id or ""] = png(1, 2, 3) + b"\0" * 1024 * 1024
    site.chat.files[fits.file_id or ""] = png(1, 2, 3).ljust(1024 * 1024, b"\0")
    assert await run(site, photo) is None
    russian = texts.error(TaskErrorCode.TOO_LARGE, "ru", limit_mb=1)
    assert site.chat.texts(photo.chat_id) == [russian]
    await site.flow.submit(fits)
    assert len(site.paid(fits)) == 1


@clause("P-2", "P-18")
@pytest.mark.parametrize("body", [b"", b"GIF89a....", b"<html>", b"RIFF....WEBPVP8 "])
async def test_p2_only_jpeg_and_png_by_content(site: Site, body: bytes) -> None:
    photo = site.photo()
    site.chat.files[photo.file_id or ""] = body
    assert await run(site, photo) is None
    assert site.chat.texts(photo.chat_id) == [words(TaskErrorCode.NOT_A_PHOTO)]


@clause("P-18")
@pytest.mark.parametrize(
    ("caption", "code"),
    [
        ("fail http://10.0.0.1/inner", TaskErrorCode.PROVIDER_FAILED),
        ("fail NSFW content", TaskErrorCode.CONTENT_REFUSED),
    ],
)
async def test_p18_a_model_failure_is_reported_without_its_own_text(
    site: Site, caption: str, code: TaskErrorCode
) -> None:
    photo = site.photo(caption=caption)
    document = await run(site, photo)
    assert document is not None
    assert (document["status"], document["error"]["code"]) == ("failed", code)
    assert caption in document["error"]["message"]
    assert site.chat.texts(photo.chat_id) == [words(code)]


@clause("P-18", "P-20")
@pytest.mark.parametrize(
    ("status", "code"),
    [(401, TaskErrorCode.PROVIDER_ACCOUNT), (422, TaskErrorCode.PROVIDER_REJECTED)],
)
async def test_p20_a_rejected_create_is_final(site: Site, status: int, code: TaskErrorCode) -> None:
    photo = site.photo()
    site.replicate.plan("create", answers(status))
    assert await run(site, photo) is None
    assert site.replicate.calls.count("create") == 1
    assert site.chat.texts(photo.chat_id) == [words(code)]


@clause("P-18")
async def test_p18_a_provider_that_stays_busy_is_reported(site: Site) -> None:
    photo = site.photo()
    site.replicate.plan("create", *[answers(429)] * 50)
    assert await run(site, photo) is None
    assert site.chat.texts(photo.chat_id) == [words(TaskErrorCode.BUSY)]


@clause("P-16", "P-18")
async def test_p16_an_expired_output_is_a_failure_with_its_code(site: Site) -> None:
    site.replicate.webhooks = "never"
    photo = site.photo()
    await site.flow.submit(photo)
    await asyncio.to_thread(site.replicate.wait_idle)
    site.replicate.expire_outputs()
    await site.recover()
    assert await site.open_tasks() == []
    assert site.chat.texts(photo.chat_id) == [words(TaskErrorCode.OUTPUT_EXPIRED)]


@clause("P-16")
async def test_p16_a_webhook_whose_output_has_expired_is_a_failure_with_its_code(
    site: Site,
) -> None:
    site.replicate.webhooks = "never"
    photo = site.photo()
    tid = await site.flow.submit(photo)
    await asyncio.to_thread(site.replicate.wait_idle)
    site.replicate.files.clear()
    (prediction,) = site.paid(photo)
    webhook = site.replicate.webhook(str(prediction["id"]))
    assert await site.receiver_status(tid, webhook) == 200
    assert await site.open_tasks() == []
    document = await site.task(str(prediction["id"]))
    assert document is not None
    assert document["error"]["code"] == TaskErrorCode.OUTPUT_EXPIRED
    assert site.chat.texts(photo.chat_id) == [words(TaskErrorCode.OUTPUT_EXPIRED)]


@clause("P-5", "P-16")
async def test_p16_a_task_that_is_too_old_fails_and_stays_failed(site: Site) -> None:
    site.replicate.webhooks = "never"
    photo = site.photo()
    tid = await site.flow.submit(photo)
    await asyncio.to_thread(site.replicate.wait_idle)
    (prediction,) = site.paid(photo)
    known = str(prediction["id"])
    output, prediction["output"], prediction["status"] = prediction["output"], None, "processing"
    await site.recover(passes=16, step_s=400)
    assert "cancel" in site.replicate.calls
    assert site.chat.texts(photo.chat_id) == [words(TaskErrorCode.TIMEOUT)]
    late = site.replicate.webhook(known, status="succeeded", output=output)
    assert await site.receiver_status(tid, late) == 200
    document = await site.task(known)
    assert document is not None
    assert (document["status"], document["error"]["code"]) == ("failed", "timeout")
    assert site.chat.pictures(photo.chat_id) == []


@clause("P-17")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_p17_a_user_who_blocked_the_bot_ends_the_task(site: Site, when: str) -> None:
    site.replicate.webhooks = "never"
    photo = site.photo()
    if when == "before":
        site.chat.blocked.add(photo.chat_id)
    await site.flow.submit(photo)
    site.chat.blocked.add(photo.chat_id)
    await site.recover()
    assert await site.open_tasks() == []
    assert await site.state(photo) == "delivered"
    assert len(site.paid(photo)) == (0 if when == "before" else 1)
    assert site.chat.pictures(photo.chat_id) == []


@clause("P-33")
async def test_p33_a_huge_caption_does_not_break_its_task(site: Site) -> None:
    photo = site.photo(caption="x" * 1_000_000)
    await site.flow.submit(photo)
    await site.recover()
    assert await site.open_tasks() == []
    assert len(site.chat.pictures(photo.chat_id)) == 1


@clause("P-21")
async def test_p21_every_picture_is_stored_and_each_has_its_own_message(site: Site) -> None:
    photo = site.photo(caption="two")
    await site.flow.submit(photo)
    await asyncio.to_thread(site.replicate.wait_idle)
    await site.recover()
    assert await site.open_tasks() == []
    (prediction,) = site.paid(photo)
    document = await site.task(str(prediction["id"]))
    assert document is not None
    keys = [each["key"] for each in document["jobwire"]["outputs"]]
    assert [key.rpartition("/")[2] for key in keys] == [
        f"{prediction['id']}.png",
        f"{prediction['id']}-2.png",
    ]
    assert document["result"]["output_s3_key"] == keys[0]
    assert len(site.chat.pictures(photo.chat_id)) == 2
    assert site.chat.texts(photo.chat_id) == []


@clause("P-19")
async def test_p19_tasks_of_a_chat_in_flight_are_limited(make_site: MakeSite) -> None:
    """An album of four: each photo is a task, up to the limit; then it counts down again."""
    site = make_site(in_flight=2)
    site.replicate.webhooks = "never"
    key = user_key(77)
    boto_client(site.bucket.config).put_object(
        Bucket=site.bucket.config.bucket, Key=key, Body=b'{"theme": "dark"}'
    )
    album = [site.photo(chat_id=77) for _ in range(4)]
    await asyncio.gather(*(site.flow.submit(photo) for photo in album))
    assert sum(len(site.paid(photo)) for photo in album) == 2
    refused = [
        each for each in site.chat.texts(77) if each == words(TaskErrorCode.TOO_MANY_AT_ONCE)
    ]
    assert len(refused) == 2
    await site.recover()
    assert len(site.chat.pictures(77)) == 2
    again = site.photo(chat_id=77)
    await site.flow.submit(again)
    assert len(site.paid(again)) == 1
    raw = boto_client(site.bucket.config).get_object(Bucket=site.bucket.config.bucket, Key=key)
    assert b'"theme": "dark"' in raw["Body"].read()


@clause("P-19")
async def test_p19_photos_of_a_user_per_hour_are_limited(make_site: MakeSite) -> None:
    site = make_site(per_hour=2)
    photos = [site.photo(chat_id=78, user_id=9) for _ in range(3)]
    for photo in photos:
        await site.flow.submit(photo)
    assert [len(site.paid(photo)) for photo in photos] == [1, 1, 0]
    other = site.photo(chat_id=78, user_id=10)
    await site.flow.submit(other)
    assert len(site.paid(other)) == 1
    site.clock.shift_s += 3601
    later = site.photo(chat_id=78, user_id=9)
    await site.flow.submit(later)
    assert len(site.paid(later)) == 1


async def until_asked(site: Site, photo: Photo) -> None:
    """The cog server is shared and runs one prediction at a time: repeat until it has accepted
    ours."""

    async def webhook_came() -> bool:
        if await site.state(photo) == "stored":  # it was busy
            site.clock.shift_s += 20
            await reconcile(site.flow)
        return "webhook" in site.receiver.calls

    await wait_until(webhook_came, "the first webhook", timeout_s=60)


async def closed(site: Site) -> bool:
    return await site.open_tasks() == []


@clause("P-14", "P-20")
async def test_p20_the_same_flow_over_a_cog_server(make_site: MakeSite, cog_url: str) -> None:
    site = make_site(cog_url=cog_url)
    photo = site.photo()
    tid = await site.flow.submit(photo)
    await until_asked(site, photo)
    await wait_until(lambda: closed(site), "the task to be closed")
    assert len(site.chat.pictures(photo.chat_id)) == 1
    document = await site.task(tid)  # the prediction has our own id
    assert document is not None
    assert (document["status"], document["replicate"]["model"]) == ("succeeded", "test/invert")
    assert document["replicate"]["version"] is None
    assert document["result"]["output_url"] is None


@clause("P-16", "P-20")
async def test_p20_a_prediction_without_webhook_is_polled(
    make_site: MakeSite, cog_url: str
) -> None:
    """cog has no polling; a repeated request with the same id runs it again and causes its
    webhook."""
    site = make_site(cog_url=cog_url)
    photo = site.photo()
    site.receiver.plan("webhook", answers(200))  # accepted by a proxy, and lost
    await site.flow.submit(photo)
    await until_asked(site, photo)
    site.clock.shift_s += 70

    async def closed_by_a_pass() -> bool:
        await reconcile(site.flow)
        return await closed(site)

    await wait_until(closed_by_a_pass, "the task to be closed", timeout_s=60)
    assert len(site.chat.pictures(photo.chat_id)) == 1
    assert site.chat.texts(photo.chat_id) == []


@clause("P-39")
@pytest.mark.parametrize("lost", ["webhook", "answer to create"])
async def test_p39_the_provider_is_asked_as_long_as_it_keeps_the_output(
    site: Site, lost: str
) -> None:
    """Unreachable for most of an hour: the paid picture is still there, and is delivered."""
    site.replicate.webhooks = "never"
    if lost == "answer to create":
        site.replicate.plan("create", stored_but_dropped)
    photo = site.photo()
    await site.flow.submit(photo)
    await asyncio.to_thread(site.replicate.wait_idle)
    away = build_flow(replace(site.addresses, replicate_url="http://127.0.0.1:9"), site.clock)
    for _ in range(11):
        site.clock.shift_s += 300
        await reconcile(away)
    await site.recover(passes=1, step_s=700)
    await site.verify_once(photo)


@clause("P-39")
async def test_p39_a_provider_that_never_answers_ends_the_task_at_last(site: Site) -> None:
    site.replicate.webhooks = "never"
    photo = site.photo()
    await site.flow.submit(photo)
    site.replicate.plan("get", *[answers(503)] * 200)
    await site.recover(passes=16, step_s=500)
    assert await site.open_tasks() == []
    assert site.chat.texts(photo.chat_id) == [words(TaskErrorCode.TIMEOUT)]


@clause("P-18")
@pytest.mark.parametrize("status", [401, 402])
async def test_p18_a_refused_account_is_told_to_the_user_and_once_to_the_owner(
    make_site: MakeSite, status: int
) -> None:
    site = make_site(owner_chat=500)
    site.replicate.plan("create", *[answers(status)] * 2)
    for _ in range(2):
        photo = site.photo()
        assert await run(site, photo) is None
        assert site.chat.texts(photo.chat_id) == [words(TaskErrorCode.PROVIDER_ACCOUNT)]
    (alert,) = site.chat.texts(500)
    assert f"replicate answered {status} to create" in alert


async def ended_with(site: Site, output: object) -> Photo:
    """A photo whose run has been paid and has this output."""
    site.replicate.webhooks = "never"
    photo = site.photo()
    await site.flow.submit(photo)
    await asyncio.to_thread(site.replicate.wait_idle)
    site.paid(photo)[0]["output"] = output
    await site.recover()
    assert await site.open_tasks() == []
    return photo


@clause("P-21")
@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("A cat on a roof.", "A cat on a roof."),
        (["A cat", " on a", " roof."], "A cat on a roof."),
        ("x" * 5000, "x" * 4095 + "…"),
    ],
)
async def test_p21_a_text_is_delivered_as_text(site: Site, output: object, told: str) -> None:
    photo = await ended_with(site, output)
    assert site.chat.texts(photo.chat_id) == [told]
    document = await site.task(str(site.paid(photo)[0]["id"]))
    assert document is not None
    assert document["status"] == "succeeded"


@clause("P-21")
@pytest.mark.parametrize(
    "body",
    [b"\0\0\0\x18ftypmp42" + b"\0" * 100, bytes(MAX_OUTPUT_BYTES + 1)],
    ids=["video", "large"],
)
async def test_p21_what_is_no_picture_for_a_chat_is_delivered_as_a_link(
    site: Site, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    def public(_address: object) -> bool:
        return True

    monkeypatch.setattr(fetch, "is_public", public)
    site.replicate.files["/delivery/file"] = body
    url = f"{site.replicate.url}/delivery/file"
    photo = await ended_with(site, url)
    assert site.chat.texts(photo.chat_id) == [texts.link("en", url)]


@clause("P-22")
async def test_p22_an_address_of_this_machine_is_no_link(site: Site) -> None:
    site.replicate.files["/delivery/file"] = b"no picture"
    photo = await ended_with(site, f"{site.replicate.url}/delivery/file")
    assert site.chat.texts(photo.chat_id) == [words(TaskErrorCode.OUTPUT_REFUSED)]
