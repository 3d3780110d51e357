"""How deep JSON may nest is ours to say: the interpreters' stacks differ."""

from __future__ import annotations

import json

import msgspec
import pytest

from jobwire.json_depth import MAX_DEPTH, TooDeep, bounded, has_large_number, is_too_deep
from jobwire.worker.codec import NotJson, to_json

_decode = bounded(msgspec.json.Decoder().decode)


def nested(levels: int) -> str:
    """Lists and objects in turn, around a null."""
    pairs, rest = divmod(levels, 2)
    return "[" * rest + '[{"a":' * pairs + "null" + "}]" * pairs + "]" * rest


@pytest.mark.parametrize("levels", [0, 1, MAX_DEPTH - 1, MAX_DEPTH])
def test_json_down_to_the_limit_is_read_and_written(levels: int) -> None:
    text = nested(levels)
    value = _decode(text)
    assert _decode(text.encode()) == json.loads(text) == value
    assert to_json(value) == text


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 5_000, 100_000])
def test_json_below_the_limit_is_refused_before_it_is_decoded(levels: int) -> None:
    for text in (nested(levels), nested(levels).encode(), "[" * levels):
        with pytest.raises(TooDeep, match=str(MAX_DEPTH)):
            _decode(text)


def test_a_result_below_the_limit_is_refused() -> None:
    value: object = None
    for _ in range(MAX_DEPTH + 1):
        value = [value]
    with pytest.raises(NotJson, match="nested too deeply"):
        to_json(value)


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("", 0),
        ('"[[["', 0),
        ('["[", "]", [1]]', 2),
        ('{"a": "", "b": {"": "{"}}', 2),
        (r'["\"[", [], "\\", [[]]]', 3),
        (r'["\\\"[[[["]', 1),
        ("[[], [[]], []]", 3),
        ('["ü[", "\U0001f600", []]', 2),
        ('["an open string [[[[', 1),
        ("]]]][[", 0),
    ],
)
def test_brackets_in_strings_do_not_count(text: str, levels: int) -> None:
    for form in (text, text.encode()):
        assert not is_too_deep(form, levels)
        assert levels == 0 or is_too_deep(form, levels - 1)


@pytest.mark.parametrize(
    ("text", "large"),
    [
        ("1e400", True),
        ("[1, -1E+999]", True),
        ("9" * 4_301, True),
        ("9" * 4_300, False),
        ('{"a": 1e300, "b": "1e400"}', False),
        (r'["\"1e400", 2e3]', False),
        (r'["\\", 1e400]', True),
        ('"' + "9" * 5_000 + '"', False),
        ("0." + "9" * 5_000, False),
    ],
)
def test_numbers_that_decoders_refuse_are_found(text: str, large: bool) -> None:
    assert has_large_number(text.encode()) is large
    if large:
        with pytest.raises((msgspec.DecodeError, ValueError)):
            msgspec.json.decode(text)
    else:
        msgspec.json.decode(text)
