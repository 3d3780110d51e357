"""The readme of the package has no links that end outside of the repository."""

from __future__ import annotations

import re

from tests.support import clause
from tests.support.program import ROOT
from tools.package_readme import without_local_links


@clause("O-10")
def test_o10_the_readme_of_the_package_has_no_local_links() -> None:
    text = without_local_links((ROOT / "README.md").read_text(encoding="utf-8"))
    assert re.findall(r"\]\((?!https?://)[^)]*\)", text) == []
    assert "pip install 'jobwire[all]'" in text
    # Code is not changed.
    assert without_local_links('print(run("chat", {})["text"])') == 'print(run("chat", {})["text"])'
