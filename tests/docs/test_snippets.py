"""Every command and snippet of the pages runs, on one `jobwire up`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import PAGES, blocks
from tests.docs.runner import Site
from tests.support import clause
from tests.support.program import ROOT

# Pages with a test of their own, which knows what each line answers.
OWN_TESTS: Final = {
    "docs/bucket.md": "tests/objects/test_docs.py",
    "docs/from-celery.md": "tests/docs/test_from_celery.py",
    "docs/jobs-http.md": "tests/docs/test_jobs_http.py",
    "docs/other-languages.md": "tests/docs/test_other_languages.py",
    "docs/toolkit.md": "tests/valkey/test_docs.py",
}
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


@clause("O-12")
@pytest.mark.timeout(300)
def test_every_command_and_snippet_of_the_pages_runs(tmp_path: Path) -> None:
    """All pages in one test, one after the other: they share one program and its queues."""
    problems: dict[str, list[str]] = {}
    with Site(tmp_path) as site:
        for page in _RUN:
            if failures := site.run(page):
                problems[str(page.relative_to(ROOT))] = failures
    report = "\n\n".join(f"── {page}\n{text}" for page, each in problems.items() for text in each)
    assert not problems, report
