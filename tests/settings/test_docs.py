"""`docs/settings.md` lists every setting as it is."""

from __future__ import annotations

from pathlib import Path

from jobwire.settings import Settings, sections, words
from jobwire.settings.page import page
from tests.support import clause


@clause("O-3")
def test_the_page_of_settings_is_up_to_date() -> None:
    written = Path(__file__).parents[2] / "docs" / "settings.md"
    assert written.read_text(encoding="utf-8") == page(), (
        "write it anew: python -m jobwire.settings.page > docs/settings.md"
    )


@clause("O-3")
def test_every_setting_has_words() -> None:
    for section in sections(Settings):
        said = words(section)
        assert [leaf.path for leaf in section.leaves if leaf.path not in said] == []
