"""P-31: no secret in a log line, a field or a traceback."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobwire.log import LoggingSettings, bind_only, component, setup
from jobwire.redaction import MASK, redact, register_secrets
from jobwire.settings import load
from tests.cli.runner import jobwire
from tests.support import clause

BOT = "123456789:AAH-abcdefghijklmnopqrstuvwxyz_01234"
SECRETS = [
    f"POST https://api.telegram.org/bot{BOT}/sendPhoto",
    f"token is {BOT}.",
    "Authorization: Bearer r8_ABCdef0123456789ABCdef",
    "authorization='Token 0123456789abcdef'",
    "key sk-proj-0123456789abcdefghij failed",
    "key jw_0123456789abcdefghij failed",
    "secret whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "GET https://s3/b/k.jpg?X-Amz-Date=1&X-Amz-Signature=0123456789abcdef&x=1",
    "https://host/events?token=0123456789abcdef",
    "valkey://jobwire:0123456789abcdef@127.0.0.1:6379/0",
    "POST /hooks/telegram/0123456789abcdef01234567",
    "https://discord.test/api/webhooks/42/0123456789abcdef01234567",
    "X-Telegram-Bot-Api-Secret-Token: 0123456789abcdef",
]
PLAIN = [
    "job 0199a5c2-7d2e-7aaa-8bbb-0123456789ab took 3 s",
    "POST /hooks/replicate/abcdefghijklmnopqrstuvwxyz234567",
    "the stream token authentication failed",
    "GET http://127.0.0.1:8080/v1/jobs?limit=10&after=0123456789abcdef",
    "entry=1731727392000-0 stream=jobs:stream token=0123456789abcdef",
]


@pytest.fixture
def out(own_logging: None) -> Iterator[io.StringIO]:
    """A stream to log to."""
    yield io.StringIO()
    bind_only({})


@clause("P-31")
@pytest.mark.parametrize("text", SECRETS)
def test_p31_a_text_with_the_form_of_a_secret_is_masked(text: str) -> None:
    shown = redact(text)
    assert MASK in shown
    assert "0123456789" not in shown
    assert "abcdefghij" not in shown
    assert "MfKQ9r8GKY" not in shown
    assert redact(shown) == shown


@clause("P-31")
@pytest.mark.parametrize("text", PLAIN)
def test_p31_ordinary_texts_are_not_changed(text: str) -> None:
    assert redact(text) == text


@clause("P-31")
@pytest.mark.parametrize("format_", ["text", "json"])
def test_p31_messages_fields_and_tracebacks_are_masked(out: io.StringIO, format_: str) -> None:
    register_secrets(['no form "at all"', "valkey://me:hunter22-of-mine@host/0", "short"])
    setup("gateway", LoggingSettings(format=format_), out)  # pyright: ignore[reportArgumentType] - parametrized
    log = component("predictions")
    log.warning("got %s", 'no form "at all"', extra={"url": f"https://t/bot{BOT}/x"})
    try:
        raise ValueError(f"hunter22-of-mine was refused, and {BOT} too; short")
    except ValueError:
        log.exception("failed")
    text = out.getvalue()
    for secret in ("at all", "hunter22", BOT):
        assert secret not in text
    assert "short" in text
    assert text.count(MASK) >= 4
    if format_ == "json":
        lines = [json.loads(line) for line in text.splitlines()]
        assert lines[0]["message"] == f"got {MASK}"
        assert "ValueError" in lines[1]["traceback"]


@clause("P-31")
def test_p31_the_secrets_of_the_settings_are_known(tmp_path: Path) -> None:
    loaded = load(
        environ={
            "REPLICATE_WEBHOOK_SECRET": "a secret of the webhook",
            "JOBWIRE_VALKEY_PASSWORD": "a password of valkey",
            "JOBWIRE_GATEWAY_PORT": "1",
        }
    )
    assert sorted(loaded.secrets) == ["a password of valkey", "a secret of the webhook"]


@clause("P-31")
def test_p31_a_key_is_a_secret_as_text_and_not_as_a_path() -> None:
    text = "-----BEGIN PRIVATE KEY-----\\nMC4C"
    assert load(environ={"JOBWIRE_IMAGES_TOKEN_PRIVATE_KEY": text}).secrets == [text]
    assert load(environ={"JOBWIRE_IMAGES_TOKEN_PRIVATE_KEY": "/keys/private.pem"}).secrets == []


@clause("P-31")
def test_p31_an_error_of_a_command_is_masked(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(f"raise ValueError('cannot use {BOT}')\n")
    done = jobwire("worker", "broken:app", cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot use" in done.stderr
    assert BOT not in done.stderr


@clause("P-31")
def test_p31_long_texts_are_masked_in_linear_time() -> None:
    """A quadratic search would take hours here and exceed the test's time limit."""
    for piece in ("a.", "token ", "://a:", "bot1", "/webhook/", "?sig", "api-key="):
        assert redact(piece * (300_000 // len(piece)))


@clause("T-11", "O-3")
def test_t11_synonyms_of_level_and_format(out: io.StringIO, tmp_path: Path) -> None:
    file = tmp_path / "jobwire.yaml"
    file.write_text("logging: {level: warn, format: console}\n")
    setup("gateway", load(file=file, environ={}).settings.logging, out)
    component("x").info("not written")
    component("x").warning("written")
    (line,) = out.getvalue().splitlines()
    assert line.endswith("WARNING  gateway x: written")
