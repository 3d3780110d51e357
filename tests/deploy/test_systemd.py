"""The systemd units are valid and use existing commands and settings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from jobwire.cli.main import COMMANDS
from jobwire.settings import load
from tests.cli.runner import clean_env
from tests.e2e.compose import SECRETS, read_services
from tests.support import clause
from tests.support.program import ROOT

FOLDER = ROOT / "deploy" / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))


@clause("O-8")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_o8_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("expected: systemd is not on this machine")
    # The program is not installed in /opt; use one that every machine has at the same place.
    text = unit.read_text().replace("/opt/jobwire/bin/jobwire", "/bin/sh")
    copy = tmp_path / unit.name
    copy.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", copy],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@clause("O-8")
def test_o8_units_have_only_the_rights_that_they_need() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("expected: systemd is not on this machine")
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=25", *UNITS],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "unrecognized option" in done.stderr:
        pytest.skip("expected: systemd-analyze is older than 250")
    assert done.returncode == 0, re.findall(r"→ .*", done.stdout)


@clause("O-8")
def test_o8_units_use_existing_commands_and_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in set(os.environ) - set(clean_env()):
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    for unit in UNITS:
        (command,) = re.findall(
            r"^ExecStart=/opt/jobwire/bin/jobwire (\w+)", unit.read_text(), re.MULTILINE
        )
        assert command in COMMANDS
        given = dict(re.findall(r"^Environment=(JOBWIRE_\w+)=(.+)", unit.read_text(), re.MULTILINE))
        assert given.pop("JOBWIRE_CONFIG") == "/etc/jobwire/jobwire.yaml"
        given = {name: text.replace("%i", "1") for name, text in given.items()}
        settings = load(environ=given)
        assert not settings.warnings
        if unit.name.startswith("jobwire-worker@"):
            assert settings.settings.worker.metrics_port == 9461
        assert "\nRestartPreventExitStatus=2\n" in unit.read_text()
    loaded = load(file=FOLDER / "jobwire.yaml")
    assert not loaded.warnings
    for name in re.findall(r"JOBWIRE_\w+", (FOLDER / "README.md").read_text()):
        monkeypatch.setenv(name, "valkey://localhost" if name.endswith("URL") else "9465")
    load()


@clause("O-8")
def test_o8_units_run_the_commands_of_the_compose_file_with_writable_folders() -> None:
    """That these commands start with an unwritable home is part of tests/e2e."""
    services = read_services({**SECRETS, "JOBWIRE_GATEWAY_KEYS": "[]"}).values()
    composed = {" ".join(each["command"]) for each in services if "command" in each}
    names = {"gateway", "images-api", "images-gateway", "worker@"}
    for name in names:
        text = (FOLDER / f"jobwire-{name}.service").read_text()
        (command,) = re.findall(r"^ExecStart=/opt/jobwire/bin/jobwire (.+)", text, re.MULTILINE)
        assert command.removesuffix(" ${WORKER_APP}") in composed
        # The system is read-only: what a program writes is in a directory of its unit.
        assert "ProtectSystem=strict" in text
        for kind, folder in re.findall(
            r"^Environment=\w+=/var/(lib|cache)/(\S+)", text, re.MULTILINE
        ):
            directory = {"lib": "StateDirectory", "cache": "CacheDirectory"}[kind]
            assert f"\n{directory}={folder}\n" in text
