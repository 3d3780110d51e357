"""Every command and snippet of the pages runs, on one `jobwire up`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.docs.pages import PAGES, blocks
from tests.docs.runner import Site
from tests.support import clause
from tests.support.program import ROOT

# Pages with a test of their own, which knows what each line answers.
OWN_TESTS: Final = {
    "docs/bucket.md": "tests/objects/test_docs.py",
    "docs/durable.md": "tests/docs/test_durable.py",
    "docs/from-celery.md": "tests/docs/test_from_celery.py",
    "docs/jobs-http.md": "tests/docs/test_jobs_http.py",
    "docs/other-languages.md": "tests/docs/test_other_languages.py",
    "docs/toolkit.md": "tests/valkey/test_docs.py",
    "docs/waiting.md": "tests/docs/test_waiting.py",
}
_PARAMETER: Final = re.compile(r"\{\w+\}")
LANGUAGES: Final = {"js", "json", "python", "sh", "text", "toml", "yaml"}
_RUN: Final = [
    page
    for page in PAGES
    if str(page.relative_to(ROOT)) not in OWN_TESTS and "decisions" not in page.parts
]


def test_every_block_has_a_language_and_every_exception_a_reason() -> None:
    for page in PAGES:
        for block in blocks(page):
            assert block.language in LANGUAGES, f"{block}: which language?"
            assert block.note in ("", "not run", "install", "exit"), f"{block}: {block.note}?"
            assert not block.note or block.detail


def test_pages_with_their_own_test_have_one() -> None:
    for page, test in OWN_TESTS.items():
        assert Path(page).name in (ROOT / test).read_text()


def undocumented_routes(document: Mapping[str, Any]) -> list[str]:
    """Paths of the API that no page has; the names of their parameters do not matter."""
    pages = [page for page in PAGES if page.parent.name == "docs"]
    text = _PARAMETER.sub("{}", "\n".join(page.read_text(encoding="utf-8") for page in pages))
    paths = (_PARAMETER.sub("{}", path) for path in document["paths"])
    return [path for path in paths if f"{path}`" not in text and not _shortened(path, text)]


def _shortened(path: str, text: str) -> bool:
    """Whether a page has the path with a query, or only `/resume` behind its sibling."""
    if re.search(rf"{re.escape(path)}[`?\s]", text):
        return True
    parent, _, last = path.rpartition("/")
    return any(
        re.search(rf"`(…)?/{re.escape(last)}`", line)
        for line in text.splitlines()
        if f"{parent}/" in line
    )


def undocumented_metrics(text: str) -> list[str]:
    """Metrics of a gateway that docs/metrics.md does not have."""
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    names = re.findall(r"^# TYPE (jobwire_\w+)", text, re.MULTILINE)
    return [name for name in names if not re.search(rf"`{name}\b", page)]


@clause("O-5", "O-9", "O-12")
@pytest.mark.timeout(600)
def test_every_command_and_snippet_of_the_pages_runs(tmp_path: Path) -> None:
    """All pages in one test, one after the other: they share one program and its queues."""
    problems: dict[str, list[str]] = {}
    with Site(tmp_path) as site:
        for page in _RUN:
            if failures := site.run(page):
                problems[str(page.relative_to(ROOT))] = failures
        document = httpx.get(f"{site.url}/openapi.json", trust_env=False, timeout=60).json()
        metrics = httpx.get(f"{site.url}/metrics", trust_env=False, timeout=60).text
    problems |= {"routes": undocumented_routes(document), "metrics": undocumented_metrics(metrics)}
    problems = {page: each for page, each in problems.items() if each}
    report = "\n\n".join(f"── {page}\n{text}" for page, each in problems.items() for text in each)
    assert not problems, report
