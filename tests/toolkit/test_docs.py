"""The page about the toolkit tells the truth: each of its examples runs and says what it says."""

from __future__ import annotations

import re

import pytest

from jobwire.local import LocalValkey
from tests.support import Program
from tests.support.program import ROOT

PAGE = (ROOT / "docs" / "toolkit.md").read_text()
EXAMPLES = {
    title: (program, said)
    for title, program, said in re.findall(
        r"^## (\w+)$(?:(?!^## ).)*?^```python\n(.*?)^```\n```text\n(.*?)^```",
        PAGE,
        re.MULTILINE | re.DOTALL,
    )
}


def test_each_part_has_an_example() -> None:
    parts = {"Connection", "Producer", "Consumer", "Reclaimer", "ProgressTracker", "HealthChecker"}
    assert set(EXAMPLES) == parts
    assert PAGE.count("```python") == len(parts)


@pytest.mark.parametrize("title", EXAMPLES)
def test_the_example_runs_and_says_what_the_page_says(valkey: LocalValkey, title: str) -> None:
    source, said = EXAMPLES[title]
    with Program("-W", "error", "-c", source, env={"VALKEY_URL": valkey.url}) as program:
        assert program.wait() == 0, program.output
        assert program.output == said
