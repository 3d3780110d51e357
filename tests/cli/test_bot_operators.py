"""The operator's commands beside a deployment of functions: the same variables (P-46)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jobwire.objects import BucketConfig
from tests.cli.runner import jobwire
from tests.standins import telegram
from tests.standins.replicate import SECRET, TOKEN
from tests.standins.telegram import TelegramStandin
from tests.support import Fresh, clause
from tests.support.s3 import make_bucket

LIVE = "https://functions.example/fn-bot"


@pytest.fixture
def bot_api() -> Iterator[TelegramStandin]:
    with TelegramStandin() as standin:
        standin.webhook_url = LIVE
        yield standin


@pytest.fixture
def env(moto: BucketConfig, fresh: Fresh, bot_api: TelegramStandin) -> dict[str, str]:
    """The variables of the functions, as their page lists them."""
    config = replace(moto, bucket=fresh("operators"))
    make_bucket(config)
    return {
        "S3_BUCKET": config.bucket,
        "MINIO_ENDPOINT": config.endpoint,
        "AWS_ACCESS_KEY_ID": config.access_key,
        "AWS_SECRET_ACCESS_KEY": config.secret_key,
        "TELEGRAM_BOT_TOKEN": telegram.TOKEN,
        "TELEGRAM_WEBHOOK_SECRET": telegram.SECRET,
        "JOBWIRE_PREDICTIONS_TELEGRAM_URL": bot_api.url,
        "REPLICATE_API_TOKEN": TOKEN,
        "REPLICATE_MODEL": "owner/name",
        "REPLICATE_WEBHOOK_SECRET": SECRET,
        "CALLBACK_URL": "https://functions.example/fn-callback",
    }


def findings(folder: Path, env: dict[str, str]) -> list[dict[str, str]]:
    done = jobwire("bot", "doctor", "--json", cwd=folder, env=env)
    return [json.loads(line) for line in done.stdout.splitlines()]


@clause("P-46")
def test_p46_commands_read_the_variables_of_the_functions(
    tmp_path: Path, env: dict[str, str]
) -> None:
    for command in (
        ("bot", "tasks", "--json"),
        ("bot", "reconcile", "--json"),
        ("lifecycle", "apply", "--json"),
        ("lifecycle", "show", "--json"),
    ):
        done = jobwire(*command, cwd=tmp_path, env=env)
        assert done.returncode == 0, (command, done.stderr)


@clause("P-46")
def test_p46_doctor_knows_a_deployment_of_functions(
    tmp_path: Path, env: dict[str, str], bot_api: TelegramStandin
) -> None:
    """A live webhook is right; without one, updates go nowhere. Nothing advises to delete it."""
    public = env | {"JOBWIRE_OBJECTS_PUBLIC_ENDPOINT": "https://storage.example"}
    found = findings(tmp_path, public)
    bot = [each for each in found if each["check"].startswith(("bot", "telegram"))]
    assert {each["verdict"] for each in bot} == {"ok"}, bot
    without = {name: value for name, value in public.items() if name != "CALLBACK_URL"}
    assert "--delete-webhook" not in json.dumps(findings(tmp_path, without))
    bot_api.webhook_url = ""
    (webhook,) = (
        each for each in findings(tmp_path, public) if each["check"] == "telegram webhook"
    )
    assert (webhook["verdict"], "setWebhook" in webhook["fix"]) == ("fault", True)


@clause("P-46")
def test_p46_doctor_fails_on_what_replicate_cannot_reach(
    tmp_path: Path, env: dict[str, str]
) -> None:
    """The store is on loopback; the callback is http, or in a private network."""
    for callback in ("http://bot.example/cb", "https://10.0.0.7/cb", "https://localhost/cb"):
        reach = [
            each["found"]
            for each in findings(tmp_path, env | {"CALLBACK_URL": callback})
            if (each["check"], each["verdict"]) == ("bot reach", "fault")
        ]
        assert len(reach) == 2, reach
        assert "photos" in reach[0]
        assert "callback_url" in reach[1]
