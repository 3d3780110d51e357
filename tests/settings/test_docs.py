"""`docs/settings.md` matches the code."""

from __future__ import annotations

from pathlib import Path

from jobwire.settings import Settings, descriptions, sections
from jobwire.settings.page import page
from tests.support import clause


@clause("O-3")
def test_the_settings_page_is_up_to_date() -> None:
    written = Path(__file__).parents[2] / "docs" / "settings.md"
    assert written.read_text(encoding="utf-8") == page(), (
        "generate it: python -m jobwire.settings.page > docs/settings.md"
    )


@clause("O-3")
def test_every_setting_has_a_description() -> None:
    for section in sections(Settings):
        texts = descriptions(section)
        assert [leaf.path for leaf in section.leaves if leaf.path not in texts] == []
