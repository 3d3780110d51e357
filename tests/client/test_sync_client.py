"""The sync client is written from the async one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import sync_client


@pytest.mark.parametrize("source", sync_client.sources(), ids=lambda source: source.stem)
def test_a_sync_module_is_the_one_that_the_tool_writes(source: Path) -> None:
    """`make sync-client` writes it anew."""
    assert sync_client.target_of(source).read_text() == sync_client.converted(source)
