"""The gateway starts only with the minor version of uvicorn that it is tested with."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest
import uvicorn

from jobwire.gateway.uvicorn_internals import TESTED, UnsupportedUvicorn, check_version
from tests.support.program import ROOT

_START = """
import uvicorn
uvicorn.__version__ = {version!r}
import jobwire.gateway.server
"""


@pytest.mark.parametrize("version", ["0.53.9", "0.55.0", "1.54.0", "0.540.0", "0.5"])
def test_another_minor_version_is_refused_with_both_versions(version: str) -> None:
    with pytest.raises(UnsupportedUvicorn) as refused:
        check_version(version)
    assert f"uvicorn {version} is installed" in str(refused.value)
    assert f"uvicorn {TESTED}.x" in str(refused.value)


def test_every_release_of_the_tested_minor_version_is_accepted() -> None:
    for version in (uvicorn.__version__, f"{TESTED}.0", f"{TESTED}.99"):
        check_version(version)


def test_the_server_does_not_load_with_another_minor_version() -> None:
    started = subprocess.run(
        [sys.executable, "-c", _START.format(version="0.99.1")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert started.returncode != 0
    assert (
        f"uvicorn 0.99.1 is installed, but the gateway needs uvicorn {TESTED}.x" in started.stderr
    )


def test_the_package_requires_the_tested_minor_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"uvicorn~={TESTED}.0" in project["optional-dependencies"]["server"]
