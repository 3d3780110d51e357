"""JSON on a terminal: long lists of numbers are abbreviated, nothing else changes."""

from __future__ import annotations

import json

from jobwire.cli.sanitize import pretty


def test_a_long_list_of_numbers_is_abbreviated() -> None:
    shown = pretty({"dim": 384, "vectors": [[0.5] * 384, [1, -2, 3e9]]})
    assert "[0.5, 0.5, 0.5, 0.5, … 384 numbers]" in shown
    assert "[1, -2, 3000000000.0]" in shown
    assert len(shown.splitlines()) == 7


def test_other_lists_and_strings_do_not_change() -> None:
    value = {"text": "[\n 1,\n 2\n]", "names": ["1", "2"], "none": [], "mixed": [1, None, "x"]}
    assert json.loads(pretty(value)) == value
    assert "\x1b" not in pretty({"text": "\x1b[31m"})
