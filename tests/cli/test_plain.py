"""JSON for people: many numbers do not fill the screen, and nothing else is changed."""

from __future__ import annotations

import json

from jobwire.cli.sanitize import pretty


def test_of_many_numbers_the_first_are_shown_with_how_many_there_are() -> None:
    shown = pretty({"dim": 384, "vectors": [[0.5] * 384, [1, -2, 3e9]]})
    assert "[0.5, 0.5, 0.5, 0.5, … 384 numbers]" in shown
    assert "[1, -2, 3000000000.0]" in shown
    assert len(shown.splitlines()) == 7


def test_what_only_looks_like_numbers_is_left_alone() -> None:
    value = {"text": "[\n 1,\n 2\n]", "names": ["1", "2"], "none": [], "mixed": [1, None, "x"]}
    assert json.loads(pretty(value)) == value
    assert "\x1b" not in pretty({"text": "\x1b[31m"})
