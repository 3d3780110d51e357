"""The package for cloud functions is complete, and its page names existing settings."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

from jobwire.functions import FunctionSettings
from jobwire.settings import sections
from tests.support import clause
from tests.support.program import ROOT
from tests.support.thirdparty import NotInstalled
from tests.systems.predictions import events

PAGE = ROOT / "deploy" / "functions" / "README.md"
ROLE_KEYS = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}


@clause("P-23")
def test_p23_the_package_runs_without_other_packages(tmp_path: Path) -> None:
    """Nothing but the package is on the path, and the entry points answer."""
    package, unpacked = tmp_path / "functions.zip", tmp_path / "unpacked"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    built = subprocess.run(
        [
            *(sys.executable, ROOT / "tools" / "function_package.py"),
            *("--python", version, "--output", package),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PIP_RETRIES": "1"},
    )
    if "Failed to establish a new connection" in built.stderr and built.returncode:
        raise NotInstalled(built.stderr.strip().splitlines()[-1])
    assert built.returncode == 0, built.stderr
    assert re.search(r"\d MB, \d+\.\d MB unpacked", built.stdout)
    with zipfile.ZipFile(package) as packed:
        packed.extractall(unpacked)
    program = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); import main;"
        "print(json.dumps([main.bot(json.loads(sys.argv[2])), main.reconcile({})]))"
    )
    event = json.dumps(events.yandex(b"{}", {}))
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, unpacked, event],
        env={"PATH": os.environ["PATH"]} | _settings(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    statuses = [answer["statusCode"] for answer in json.loads(done.stdout)]
    assert statuses == [401, 500], "no secret, and a bucket that cannot be reached"


def _settings() -> dict[str, str]:
    return {
        "MINIO_ENDPOINT": "https://storage.example",
        "S3_BUCKET": "bot",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "TELEGRAM_BOT_TOKEN": "123456:token",
        "TELEGRAM_WEBHOOK_SECRET": "secret",
        "REPLICATE_API_TOKEN": "token",
        "REPLICATE_MODEL": "owner/name",
        "REPLICATE_WEBHOOK_SECRET": "whsec_c2VjcmV0",
    }


@clause("P-35")
def test_p35_the_page_names_existing_settings() -> None:
    known = {
        name
        for section in sections(FunctionSettings)
        for leaf in section.leaves
        for name in (leaf.env_name, *leaf.foreign_names)
    }
    named = set(re.findall(r"^\| `([A-Z0-9_]+)`", PAGE.read_text(), re.MULTILINE))
    assert len(named) > 8
    assert named - known - ROLE_KEYS == set()
