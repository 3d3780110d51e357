"""What cannot be installed: the reason is kept, and only the set-up step tries again."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobwire.local import free_port
from tests.support import thirdparty
from tests.support.thirdparty import NotInstalled, axe, cache_folder


def test_a_package_that_cannot_be_installed_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(NotInstalled, match="ECONNREFUSED"):
        axe()
    monkeypatch.setattr(thirdparty, "NODE", tmp_path / "no such program")
    with pytest.raises(NotInstalled, match="ECONNREFUSED") as again:
        axe()
    assert "to try again: make test" in str(again.value)
    assert [file.name for file in cache_folder().glob("*.failed")] == ["axe-core-4.14.0.failed"]
