"""The bot as cloud functions: events in, answers out; a light and fast start (P-23)."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from base64 import b64encode
from typing import Any

import pytest

from jobwire.systems.predictions import texts
from jobwire.systems.predictions.contract import TaskErrorCode
from jobwire.systems.predictions.functions import Functions, is_timer, read_event
from jobwire.systems.predictions.telegram.api import BotApi
from jobwire.systems.predictions.telegram.bot import TelegramBot
from tests.cli.runner import clean_env
from tests.standins import replicate, telegram
from tests.support import clause
from tests.systems.predictions import events
from tests.systems.predictions.site import png
from tests.systems.predictions.telegram_site import TelegramSite

PHOTO = png(3, 70, 200)
SECRET_HEADER = {"X-Telegram-Bot-Api-Secret-Token": telegram.SECRET}


def functions_of(site: TelegramSite) -> Functions:
    bot = TelegramBot(site.flow, BotApi(telegram.TOKEN, site.telegram.url))
    return Functions(bot, telegram.SECRET)


@clause("P-23")
@pytest.mark.parametrize("cloud", [events.yandex, events.aws], ids=["yandex", "aws"])
async def test_p23_a_photo_is_processed_by_events_of_the_functions(
    telegram_site: TelegramSite, cloud: Any
) -> None:
    """bot, then callback, then reconcile for a photo whose webhook never arrives."""
    site, functions = telegram_site, functions_of(telegram_site)
    site.replicate.webhooks = "never"
    for _ in range(2):
        update = json.dumps(site.telegram.photo_message(PHOTO)).encode()
        answer = await asyncio.to_thread(functions.bot, cloud(update, SECRET_HEADER))
        assert (answer["statusCode"], answer["isBase64Encoded"]) == (200, False)
    await asyncio.to_thread(site.replicate.wait_idle)
    first, second = site.replicate.predictions
    webhook = site.replicate.webhook(first)
    tid = webhook.url.rpartition("/")[2]
    forged = {**webhook.headers, "webhook-signature": "v1,AAAA"}
    refused = await asyncio.to_thread(functions.callback, cloud(webhook.body, forged, {"tid": tid}))
    assert refused["statusCode"] == 401
    event = cloud(webhook.body, webhook.headers, {"tid": tid})
    assert (await asyncio.to_thread(functions.callback, event))["statusCode"] == 200
    assert len(site.telegram.pictures(77)) == 1
    timer = events.YANDEX_TIMER if cloud is events.yandex else events.AWS_TIMER
    site.clock.shift_s += 60
    answer = await asyncio.to_thread(functions.reconcile, timer)
    assert json.loads(str(answer["body"]))["delivered"] == 1
    assert len(site.telegram.pictures(77)) == 2
    assert (await site.task(second) or {})["status"] == "succeeded"


@clause("P-23", "P-30")
async def test_p23_the_task_of_a_webhook_may_end_the_path(telegram_site: TelegramSite) -> None:
    site, functions = telegram_site, functions_of(telegram_site)
    site.replicate.webhooks = "never"
    await site.deliver(site.telegram.photo_message(PHOTO))
    await asyncio.to_thread(site.replicate.wait_idle)
    (prediction,) = site.replicate.predictions
    webhook = site.replicate.webhook(prediction)
    path = "/hooks/replicate/" + webhook.url.rpartition("/")[2]
    event = events.aws(webhook.body, webhook.headers, path=path)
    assert (await asyncio.to_thread(functions.callback, event))["statusCode"] == 200


@clause("P-23", "P-33")
@pytest.mark.parametrize(
    ("event", "status"),
    [
        (None, 400),
        ("raw body", 400),
        ({}, 400),
        (events.YANDEX_TIMER, 400),
        ({"httpMethod": "GET", "headers": None}, 405),
        ({"httpMethod": "POST", "body": "***", "isBase64Encoded": True}, 400),
        ({"httpMethod": "POST", "body": None, "headers": {"a": 1}}, 401),
        (events.yandex(b"{}", {"x-telegram-bot-api-secret-token": "wrong"}), 401),
    ],
)
def test_p23_an_unknown_event_gets_an_answer(event: object, status: int) -> None:
    given = read_event(event)
    if status == 401:  # it is a request; the bot refuses it
        assert not hasattr(given, "status")
    else:
        assert getattr(given, "status", None) == status


@clause("P-23")
def test_p23_only_a_timer_starts_a_pass() -> None:
    queue = {"messages": [{"event_metadata": {"event_type": "x.QueueMessage"}, "details": {}}]}
    assert is_timer(events.YANDEX_TIMER)
    assert is_timer(events.AWS_TIMER)
    assert is_timer({}), "what EventBridge Scheduler sends without an input"
    for event in (None, "", queue, events.yandex(b"{}", {}), events.aws(b"{}", {})):
        assert not is_timer(event)
    disguised = {**events.aws(b"{}", {}), "source": "aws.events"}
    assert not is_timer(disguised)


PROGRAM = """
import json, pathlib, re, sys
event = json.loads(sys.argv[1])
from jobwire import functions
answer = functions.bot(event)
heavy = [name for name in sys.modules if name.split(".")[0] in sys.argv[2].split(",")
         or name.startswith(("jobwire.valkey", "jobwire.gateway", "jobwire.programs"))]
# Not `ru_maxrss`: a new process inherits that of its parent.
status = pathlib.Path("/proc/self/status")
peak = re.search(r"VmHWM:\\s+(\\d+)", status.read_text()) if status.exists() else None
memory_mb = int(peak[1]) / 1024 if peak else 0
print(json.dumps({"answer": answer, "heavy": heavy, "memory_mb": memory_mb}))
"""
HEAVY = "fastapi,starlette,pydantic,httpx,uvicorn,uvloop,hiredis,redis,click,rich,yaml,boto3,PIL"


@clause("P-23", "P-28")
async def test_p23_a_cold_function_accepts_a_photo_within_its_memory(
    telegram_site: TelegramSite,
) -> None:
    """A new process with the names of the source's environment; 60 MB are enough for it."""
    site, bucket = telegram_site, telegram_site.bucket.config
    update = json.dumps(site.telegram.photo_message(PHOTO)).encode()
    env = clean_env(
        MINIO_ENDPOINT=bucket.endpoint,
        S3_BUCKET=bucket.bucket,
        AWS_ACCESS_KEY_ID=bucket.access_key,
        AWS_SECRET_ACCESS_KEY=bucket.secret_key,
        TELEGRAM_BOT_TOKEN=telegram.TOKEN,
        TELEGRAM_WEBHOOK_SECRET=telegram.SECRET,
        JOBWIRE_PREDICTIONS_TELEGRAM_URL=site.telegram.url,
        JOBWIRE_PREDICTIONS_PROVIDER="cog",
        JOBWIRE_PREDICTIONS_COG_URL=site.telegram.url,  # refuses: no such method there
        REPLICATE_WEBHOOK_SECRET=replicate.SECRET,
    )
    event = json.dumps(events.yandex(update, SECRET_HEADER))
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", PROGRAM, event, HEAVY],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["answer"]["statusCode"] == 200, done.stderr
    assert seen["heavy"] == []
    assert seen["memory_mb"] <= 60
    assert len(await site.open_tasks()) == 0
    assert site.telegram.texts(77) == [
        texts.error(TaskErrorCode.PROVIDER_ACCOUNT, "en", limit_mb=10)
    ]


@clause("P-23", "P-25")
def test_p23_without_settings_the_answer_has_no_traceback() -> None:
    program = (
        "import json; from jobwire import functions;"
        f"print(json.dumps(functions.bot({events.yandex(b'{}', {})!r})))"
    )
    env = clean_env(TELEGRAM_BOT_TOKEN="not a token", MAX_IMAGE_MB="many")
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    answer = json.loads(done.stdout)
    assert (answer["statusCode"], answer["body"]) == (500, "not configured")
    assert "MAX_IMAGE_MB" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


def test_base64_bodies_keep_their_bytes() -> None:
    raw = bytes(range(256))
    event = {"httpMethod": "POST", "body": b64encode(raw).decode(), "isBase64Encoded": True}
    given: Any = read_event(event)
    assert given.body == raw
