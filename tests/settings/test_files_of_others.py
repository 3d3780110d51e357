"""O-16: settings files and modules that another user may have written are not used."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import pytest

from jobwire.programs.worker import NoSuchApp, load_app
from jobwire.settings import SettingsError, load
from tests.cli.runner import jobwire
from tests.support import clause
from tests.support.machine import needs_root

OTHER: Final = 65534


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "jobwire.yaml"
    file.write_text("gateway: {port: 9}\n")
    return file


@clause("O-16")
@needs_root
def test_o16_a_settings_file_of_another_user_is_not_used(config: Path) -> None:
    """Regression: in a shared folder it sent the victim's API key away."""
    os.chown(config, OTHER, OTHER)
    with pytest.raises(SettingsError, match=r"belongs to another user .* --config"):
        load(environ={})
    assert load(file=Path("jobwire.yaml"), environ={}).settings.gateway.port == 9
    assert load(environ={"JOBWIRE_CONFIG": str(config)}).settings.gateway.port == 9
    answer = jobwire("config", cwd=config.parent)
    assert answer.returncode != 0
    assert "belongs to another user" in answer.stderr


@clause("O-16")
@pytest.mark.parametrize("mode", [0o606, 0o666, 0o646])
def test_o16_a_settings_file_that_others_may_write_is_not_used(config: Path, mode: int) -> None:
    config.chmod(mode)
    with pytest.raises(SettingsError, match="others may write"):
        load(environ={})


@clause("O-16")
@needs_root
def test_o16_a_group_of_others_may_not_write_a_settings_file(config: Path) -> None:
    os.chown(config, 0, OTHER)
    config.chmod(0o664)
    with pytest.raises(SettingsError, match="others may write"):
        load(environ={})


@clause("O-16")
def test_o16_checkouts_and_mounted_config_maps_are_used(config: Path, tmp_path: Path) -> None:
    config.chmod(0o644)
    assert load(environ={}).settings.gateway.port == 9
    data = tmp_path / "..data"
    data.mkdir()
    config.rename(data / "jobwire.yaml")
    config.symlink_to(data / "jobwire.yaml")
    assert load(environ={}).settings.gateway.port == 9


@clause("O-16")
@needs_root
def test_o16_a_link_is_judged_by_its_target(config: Path, tmp_path: Path) -> None:
    target = tmp_path / "theirs.yaml"
    config.rename(target)
    os.chown(target, OTHER, OTHER)
    config.symlink_to(target)
    with pytest.raises(SettingsError, match="belongs to another user"):
        load(environ={})


@clause("O-16")
@needs_root
@pytest.mark.parametrize("what", ["module", "folder", "open-folder"])
def test_o16_a_module_of_another_user_is_not_run(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: `jobwire worker` ran a module from a shared folder as root."""
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o755)
    module = folder / "planted_module.py"
    module.write_text("from pathlib import Path\nPath('was-run').touch()\n")
    if what == "open-folder":
        folder.chmod(0o1777)
    else:
        os.chown(module if what == "module" else folder, OTHER, OTHER)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    reason = "others may write" if what == "open-folder" else "belongs to another user"
    with pytest.raises(NoSuchApp, match=reason):
        load_app("planted_module:app")
    assert not (folder / "was-run").exists()
