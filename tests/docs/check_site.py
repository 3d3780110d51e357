"""`make docs-check`: the site builds without a warning and loads nothing from other hosts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.program import ROOT
from tools.docs_reference import openapi

pytestmark = pytest.mark.timeout(600)
_LOADED = re.compile(r"<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)=[\"']?([^\"'\s>]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_nothing_is_loaded_from_other_hosts(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    foreign = {
        target
        for page in pages
        for target in _LOADED.findall(page.read_text(encoding="utf-8"))
        if re.match(r"(https?:)?//", target)
    }
    assert foreign == set()
    assert (site / "search" / "search_index.json").exists()


def test_the_references_are_complete(site: Path) -> None:
    http = (site / "http-api.html").read_text(encoding="utf-8")
    for path in openapi()["paths"]:
        assert path in http
    assert "jobwire queue ls" in (site / "cli-reference.html").read_text(encoding="utf-8")
    python = (site / "python-api.html").read_text(encoding="utf-8")
    for name in ("App", "Context", "Client", "AsyncClient", "Queue", "Bucket", "Consumer"):
        assert re.search(rf'id="jobwire\.[\w.]+\.{name}"', python), name
