"""The commands of the Makefile name tests that exist: a renamed test ends `make chaos`."""

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
_COMMANDS: Final = (ROOT / "Makefile").read_text().replace("\\\n", " ").splitlines()
_SELECTIONS: Final = sorted(
    {
        word
        for command in _COMMANDS
        if " pytest " in command
        for word in re.findall(r"tests/[\w/.:]+", command)
    }
)


@pytest.mark.parametrize("selection", _SELECTIONS)
def test_every_selected_test_exists(selection: str) -> None:
    path, _, name = selection.partition("::")
    assert (ROOT / path).exists()
    assert not name or re.search(
        rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE
    )
