"""Each example of docs/toolkit.md runs and prints what the page shows."""

from __future__ import annotations

import re

import pytest

from jobwire.local import LocalValkey
from tests.support import Program
from tests.support.program import ROOT

PAGE = (ROOT / "docs" / "toolkit.md").read_text()
EXAMPLES = {
    title: (program, output)
    for title, program, output in re.findall(
        r"^## (\w+)$(?:(?!^## ).)*?^```python\n(.*?)^```\n```text\n(.*?)^```",
        PAGE,
        re.MULTILINE | re.DOTALL,
    )
}


def test_each_class_has_an_example() -> None:
    parts = {"Connection", "Producer", "Consumer", "Reclaimer", "ProgressTracker", "HealthChecker"}
    assert set(EXAMPLES) == parts
    assert PAGE.count("```python") == len(parts)


@pytest.mark.parametrize("title", EXAMPLES)
def test_the_example_prints_what_the_page_shows(valkey: LocalValkey, title: str) -> None:
    source, output = EXAMPLES[title]
    with Program("-W", "error", "-c", source, env={"VALKEY_URL": valkey.url}) as program:
        assert program.wait() == 0, program.output
        assert program.output == output
