"""System packages are installed where possible, and otherwise named."""

from __future__ import annotations

import subprocess

import pytest

from tests import system


def test_nothing_is_printed_if_all_packages_are_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(system, "NEEDS", (system.Need("python3", "python3", "all tests"),))
    system.main()
    assert capsys.readouterr() == ("", "")


def test_without_root_missing_packages_are_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need = system.Need("no-such-program", "no-such-package", "tests of nothing")
    monkeypatch.setattr(system, "NEEDS", (need,))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    system.main()
    assert capsys.readouterr().err == (
        "no no-such-program (Debian package no-such-package): tests of nothing are skipped\n"
    )


def test_a_failing_installation_is_reported_and_does_not_stop_the_tests(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need = system.Need("no-such-program", "no-such-package", "tests of nothing")
    monkeypatch.setattr(system, "NEEDS", (need,))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    asked: list[list[str]] = []

    def which(name: str) -> str | None:
        return "/usr/bin/apt-get" if name == "apt-get" else None

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 100)

    monkeypatch.setattr("shutil.which", which)
    monkeypatch.setattr("subprocess.run", run)
    system.main()
    assert [command[-1] for command in asked] == ["no-such-package", "update"]
    assert "tests of nothing are skipped" in capsys.readouterr().err
