"""The guides of both clouds, typed as they are written, against stand-ins of their commands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobwire import functions
from jobwire.functions import FunctionSettings
from jobwire.settings.environment import from_environment
from tests.support import clause
from tests.support.program import ROOT, write_program

PAGE = ROOT / "deploy" / "functions" / "README.md"
ADDRESS = "https://functions.example/"
GIVEN = {
    "S3_BUCKET": "bot",
    "SA": "service-account",
    "ROLE": "arn:aws:iam::1:role/bot",
    "ACCOUNT": "1",
    "REGION": "eu-central-1",
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "TELEGRAM_BOT_TOKEN": "123456:token",
    "TELEGRAM_WEBHOOK_SECRET": "telegram-secret",
    "REPLICATE_API_TOKEN": "r8",
    "REPLICATE_MODEL": "owner/name",
    "REPLICATE_WEBHOOK_SECRET": "whsec_c2VjcmV0",
}
STANDIN = """
import json, sys
with open({log!r}, "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
given = sys.argv[2:]
if given[:3] == ["serverless", "function", "get"]:
    print(json.dumps({{"name": given[3], "http_invoke_url": {address!r} + given[3]}}))
if given[:2] == ["lambda", "get-function-url-config"]:
    print({address!r} + given[given.index("--function-name") + 1])
"""


def typed(folder: Path, section: str) -> list[list[str]]:
    """Run the commands of a section of the page; each call of a cloud's command and of curl."""
    text = PAGE.read_text().partition(f"## {section}\n")[2].partition("\n## ")[0]
    (script,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    log = folder / "calls.jsonl"
    source = STANDIN.format(log=str(log), address=ADDRESS)
    for name in ("yc", "aws", "curl"):
        write_program(folder / name, sys.executable, "-c", source, name)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env={"PATH": f"{folder}:{os.environ['PATH']}", **GIVEN},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in log.read_text().splitlines()]


def option(call: list[str], name: str) -> str:
    return call[call.index(name) + 1]


def deployed(section: str, calls: list[list[str]]) -> dict[str, dict[str, str]]:
    """Each function: its entry point, its memory and its variables."""
    found: dict[str, dict[str, str]] = {}
    for call in calls:
        if call[1:5] == ["serverless", "function", "version", "create"]:
            name = option(call, "--function-name")
            found[name] = {
                "entry": option(call, "--entrypoint"),
                "memory": option(call, "--memory").removesuffix("m"),
                "variables": option(call, "--environment"),
            }
        elif call[1:3] == ["lambda", "create-function"]:
            name = option(call, "--function-name")
            found[name] = {
                "entry": option(call, "--handler"),
                "memory": option(call, "--memory-size"),
            }
        elif call[1:3] == ["lambda", "update-function-configuration"]:
            text = option(call, "--environment")
            found[option(call, "--function-name")]["variables"] = text[len("Variables={") : -1]
    assert set(found) == {"fn-bot", "fn-callback", "fn-reconcile"}, section
    return found


@clause("P-46")
@pytest.mark.parametrize("section", ["Yandex Cloud", "AWS Lambda"])
def test_p46_the_guide_deploys_three_functions_that_are_configured(
    tmp_path: Path, section: str
) -> None:
    calls = typed(tmp_path, section)
    for name, function in deployed(section, calls).items():
        entry = function["entry"].removeprefix("main.")
        assert (entry, function["memory"]) == (name.removeprefix("fn-"), "128")
        assert entry in functions.__all__
        variables = dict(each.split("=", 1) for each in function["variables"].split(","))
        # Lambda sets the keys of its role, and refuses them in the configuration.
        assert ("AWS_ACCESS_KEY_ID" in variables) == (section == "Yandex Cloud")
        role = {"JOBWIRE_OBJECTS_ACCESS_KEY": "key", "JOBWIRE_OBJECTS_SECRET_KEY": "secret"}
        settings: Any = from_environment(FunctionSettings, variables | role)
        assert settings.predictions.callback_url == f"{ADDRESS}fn-callback"
        assert settings.predictions.telegram_secret == GIVEN["TELEGRAM_WEBHOOK_SECRET"]
        assert settings.objects.config().endpoint.startswith("https://")
    timers = [call for call in calls if "timer" in call or call[1:3] == ["events", "put-targets"]]
    assert any("fn-reconcile" in " ".join(call) for call in timers)
    (webhook,) = (call for call in calls if call[0] == "curl")
    assert webhook[1].endswith("/bot123456:token/setWebhook")
    assert f"url={ADDRESS}fn-bot" in webhook
    assert "secret_token=telegram-secret" in webhook
