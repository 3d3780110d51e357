"""The bot as programs: under `jobwire up`, by `jobwire bot`, and the demo in a browser."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from jobwire import Client
from jobwire.gateway.auth import new_key
from jobwire.local import free_port
from tests.cli.runner import Up, clean_env, jobwire
from tests.standins import replicate, telegram
from tests.standins.cog import python_with_cog
from tests.standins.replicate import SECRET as WEBHOOK_SECRET
from tests.standins.replicate import ReplicateStandin
from tests.standins.telegram import TelegramStandin
from tests.support import Program, clause, wait_until_sync
from tests.support.browser import Browser
from tests.systems.predictions.site import png

PHOTO = png(60, 120, 180)
PHOTOGRAPH = "skimage/data/astronaut.png"


@pytest.fixture
def bot_api() -> Iterator[TelegramStandin]:
    with TelegramStandin() as standin:
        yield standin


@pytest.fixture
def replicate_api(cog_url: str) -> Iterator[ReplicateStandin]:
    with ReplicateStandin(cog_url, lambda: round(time.time() * 1000)) as standin:
        yield standin


def settings_of(bot_api: TelegramStandin, **more: str) -> dict[str, str]:
    return {
        "TELEGRAM_BOT_TOKEN": telegram.TOKEN,
        "TELEGRAM_WEBHOOK_SECRET": telegram.SECRET,
        "JOBWIRE_PREDICTIONS_TELEGRAM_URL": bot_api.url,
        "JOBWIRE_PREDICTIONS_RECONCILE_EVERY": "1s",
        "JOBWIRE_PREDICTIONS_ALLOW_LOOPBACK": "true",
        "REPLICATE_WEBHOOK_SECRET": WEBHOOK_SECRET,
        **more,
    }


@clause("P-28", "P-30", "P-32", "P-35")
def test_p35_the_bot_under_up_by_webhook(
    tmp_path: Path, bot_api: TelegramStandin, replicate_api: ReplicateStandin
) -> None:
    """Its routes, through a tunnel's host name and without an API key; no Valkey anywhere."""
    key, hashed = new_key()
    other_key, other_hashed = new_key()
    keys: list[dict[str, Any]] = [
        {"name": "us", "hash": hashed, "scopes": ["admin"], "tenant": "acme"},
        {"name": "them", "hash": other_hashed, "scopes": ["read"], "tenant": "other"},
    ]
    port = free_port()
    env = settings_of(
        bot_api,
        REPLICATE_API_TOKEN=replicate.TOKEN,
        REPLICATE_MODEL="test/invert",
        JOBWIRE_PREDICTIONS_REPLICATE_URL=replicate_api.url,
        PUBLIC_URL=f"http://127.0.0.1:{port}",
        JOBWIRE_PREDICTIONS_TENANT="acme",
        JOBWIRE_GATEWAY_KEYS=json.dumps(keys),
    )
    with Up(tmp_path, "--only", "predictions", "--port", str(port), "--json", env=env) as up:
        up.wait_until_up()
        assert bot_api.webhook_url == f"http://127.0.0.1:{port}/hooks/telegram"
        assert "valkey" not in up.ready()[1]
        ours = httpx.Client(
            base_url=up.url, headers={"Authorization": f"Bearer {key}"}, trust_env=False, timeout=30
        )
        tunnel = httpx.Client(
            base_url=up.url,
            headers={"Host": "bot.tunnel.example", "X-Forwarded-For": "203.0.113.7"},
            trust_env=False,
            timeout=30,
        )
        with ours, tunnel:
            update = bot_api.photo_message(PHOTO)
            secret = {"X-Telegram-Bot-Api-Secret-Token": telegram.SECRET}
            assert tunnel.post("/hooks/telegram", json=update).status_code == 401
            wrong = {"X-Telegram-Bot-Api-Secret-Token": "wrong"}
            assert tunnel.post("/hooks/telegram", json=update, headers=wrong).status_code == 401
            assert tunnel.post("/hooks/telegram", json=update, headers=secret).status_code == 200
            wait_until_sync(lambda: bot_api.pictures(77), "the picture")
            (prediction,) = replicate_api.predictions
            webhook = replicate_api.webhook(prediction)
            path = urlsplit(webhook.url).path
            unsigned = tunnel.post(path, content=webhook.body)
            assert (unsigned.status_code, unsigned.json()["code"]) == (401, "bad_signature")
            forged = {**webhook.headers, "webhook-timestamp": "1"}
            assert tunnel.post(path, content=webhook.body, headers=forged).status_code == 401
            signed = tunnel.post(path, content=webhook.body, headers=dict(webhook.headers))
            assert (signed.status_code, signed.text) == (200, "known")
            # As the callback function: the task in the query, or found by its prediction.
            for bare in ("/hooks/replicate", f"/hooks/replicate?tid={path.rpartition('/')[2]}"):
                again = tunnel.post(bare, content=webhook.body, headers=dict(webhook.headers))
                assert (again.status_code, again.text) == (200, "known")
                assert tunnel.post(bare, content=webhook.body).status_code == 401
            assert tunnel.post(path.replace("replicate", "cog"), json={}).status_code == 404
            assert tunnel.get("/v1/predictions").status_code == 401

            def listed() -> list[dict[str, Any]]:
                page = ours.get("/v1/predictions").raise_for_status().json()
                return [each for each in page["predictions"] if each["status"] == "succeeded"]

            (task,) = wait_until_sync(listed, "the task to be listed")
            assert (task["chat_id"], task["tenant"]) == (77, "acme")
            one = ours.get(f"/v1/predictions/{task['id']}").raise_for_status().json()
            assert one["output_key"] == task["output_key"]
            assert ours.get("/v1/predictions/none").status_code == 404
            report = ours.post("/v1/predictions/reconcile").raise_for_status().json()
            assert report["complete"] is True
            with Client(up.url, api_key=key) as client:
                assert [each.id for each in client.predictions().predictions] == [task["id"]]
                wait_until_sync(
                    lambda: client.prediction(task["id"]).state == "delivered", "the delivery"
                )
            # P-32: another tenant sees nothing of it.
            theirs = {"Authorization": f"Bearer {other_key}"}
            page = httpx.get(f"{up.url}/v1/predictions", headers=theirs, trust_env=False).json()
            assert (page["predictions"], page["next"]) == ([], None)
            hidden = httpx.get(
                f"{up.url}/v1/predictions/{task['id']}", headers=theirs, trust_env=False
            )
            assert hidden.status_code == 404
            ended = 'jobwire_predictions_tasks_total{outcome="succeeded"} 1.0'
            wait_until_sync(lambda: ended in ours.get("/metrics").text, "the task to be counted")
            figures = ours.get("/metrics").text
            assert 'jobwire_predictions_updates_total{kind="photo"} 1.0' in figures
            assert 'jobwire_predictions_updates_total{kind="refused"} 2.0' in figures
        shown = jobwire("bot", "tasks", task["id"], "--json", cwd=tmp_path, env=env)
        assert json.loads(shown.stdout)["state"] == "delivered"
        output = up.program.output
    assert telegram.TOKEN not in output
    assert telegram.SECRET not in output


@clause("P-26", "P-35")
def test_p26_bot_poll_is_the_same_bot(
    tmp_path: Path, bot_api: TelegramStandin, cog_url: str, own_store: dict[str, str]
) -> None:
    env = settings_of(
        bot_api,
        JOBWIRE_PREDICTIONS_PROVIDER="cog",
        JOBWIRE_PREDICTIONS_COG_URL=cog_url,
        **own_store,
    )
    bot_api.webhook_url = "https://elsewhere.example/hook"
    refused = jobwire("bot", "poll", cwd=tmp_path, env=env)
    assert (refused.returncode, "--delete-webhook" in refused.stderr) == (5, True)
    found = jobwire("bot", "doctor", "--json", cwd=tmp_path, env=env).stdout.splitlines()
    verdicts = {each["check"]: each["verdict"] for each in map(json.loads, found)}
    assert (verdicts["telegram"], verdicts["telegram webhook"]) == ("ok", "note")
    bot_api.queue(bot_api.photo_message(PHOTO, language="ru"))
    command = [sys.executable, "-m", "jobwire", "bot", "poll", "--delete-webhook"]
    program = Program(command=command, cwd=tmp_path, env=clean_env(**env))
    try:
        wait_until_sync(lambda: bot_api.pictures(77), "the picture")
        program.terminate()
        assert program.wait(timeout_s=30) == 0
        output = program.output
    finally:
        program.close()
    assert telegram.TOKEN not in output
    listed = jobwire("bot", "tasks", "--json", cwd=tmp_path, env=env)
    assert json.loads(listed.stdout)["status"] == "succeeded"
    passed = jobwire("bot", "reconcile", "--json", cwd=tmp_path, env=env)
    assert json.loads(passed.stdout)["open"] == 0, passed.stdout
    unknown = jobwire("bot", "tasks", "none", cwd=tmp_path, env=env)
    assert unknown.returncode == 4


@clause("P-35")
def test_p35_a_bot_without_its_settings_names_them(
    tmp_path: Path, own_store: dict[str, str]
) -> None:
    env = {**own_store, "TELEGRAM_BOT_TOKEN": telegram.TOKEN, "PUBLIC_URL": "https://x.example"}
    done = jobwire("bot", "serve", "--port", "0", cwd=tmp_path, env=env)
    assert done.returncode == 2
    for name in ("webhook_secret", "model", "replicate_token", "telegram_secret"):
        assert f"predictions.{name}: is required" in done.stderr
    done = jobwire("bot", "serve", cwd=tmp_path, env={**own_store})
    assert "predictions.public_url" in done.stderr


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Program]:
    command = [sys.executable, "-m", "jobwire", "bot", "demo"]
    python = str(python_with_cog())
    program = Program(command=[*command, "--cog-python", python], cwd=tmp_path, env=clean_env())
    yield program
    program.terminate()
    program.wait(timeout_s=30)
    program.close()


@clause("P-27")
def test_p27_the_demo_in_a_browser(demo: Program, browser: Browser, tmp_path: Path) -> None:
    """Photo, placeholder, result: a photograph goes in, the model's picture comes out."""
    line = demo.wait_for_line("open http://", timeout_s=90)
    url = re.findall(r"http://\S+", line)[0]
    for path, status in (("/demo/messages?seen=\u00b2", 422), ("/demo/pictures/\u00b2", 404)):
        assert httpx.get(f"{url.rstrip('/')}{path}", trust_env=False).status_code == status
    photograph = next(Path(entry) / PHOTOGRAPH for entry in sys.path if _has_photograph(entry))
    with browser.page(may_complain=True) as page:
        page.open(url)
        document = page.call("DOM.getDocument")["root"]["nodeId"]
        node = page.call("DOM.querySelector", nodeId=document, selector="#file")["nodeId"]
        page.call("DOM.setFileInputFiles", nodeId=node, files=[str(photograph)])
        model = [each for each in _descendants(demo) if "cog" in " ".join(each.cmdline())]
        for process in model:
            process.suspend()
        page.click("#send button")
        page.until_text("#chat", "Photo received.")
        for process in model:
            process.resume()
        result = "document.querySelector('.message.bot img')"
        wait_until_sync(
            lambda: page.run(f"{result}?.complete && {result}.naturalWidth") == 512, "the result"
        )
        assert page.run("document.querySelectorAll('.message.bot').length") == 1
        page.screenshot(tmp_path / "demo.png")
        # The page of the product shows the task behind it, and leads back.
        page.click("header a")
        page.until_text(".steps", "Delivered")
        picture = "document.querySelector('.rail img')"
        wait_until_sync(lambda: page.run(f"{picture}?.naturalWidth") == 512, "the picture")
        page.click(".bar a")
        page.until_text("h1", "Photo bot")
        # A gateway whose systems have no overview has no route for it.
        assert [each for each in page.complaints if "404" not in each] == []


@clause("P-27")
def test_p27_the_demo_once_for_scripts(tmp_path: Path) -> None:
    photo = tmp_path / "photo.png"
    photo.write_bytes(PHOTO)
    python = str(python_with_cog())
    done = jobwire(
        *("bot", "demo", "--once", "--json", "--cog-python", python, "--photo", str(photo)),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "ERROR" not in done.stderr
    outcome = json.loads(done.stdout)
    assert (outcome["status"], outcome["pictures"], outcome["texts"]) == ("succeeded", 1, [])
    assert outcome["output_key"].endswith(f"{outcome['prediction_id']}.png")


def _descendants(program: Program) -> list[psutil.Process]:
    return psutil.Process(program.pid).children(recursive=True)


def _has_photograph(entry: str) -> bool:
    return (Path(entry) / PHOTOGRAPH).is_file()


@pytest.fixture
def own_store(seaweedfs: Any, fresh: Any) -> dict[str, str]:
    """A bucket of its own on the shared server, as settings."""
    from dataclasses import replace

    from tests.support.s3 import make_bucket

    config = replace(seaweedfs, bucket=fresh("bot"))
    make_bucket(config)
    return {
        "MINIO_ENDPOINT": config.endpoint,
        "S3_BUCKET": config.bucket,
        "MINIO_ACCESS_KEY_ID": config.access_key,
        "MINIO_SECRET_ACCESS_KEY": config.secret_key,
    }
