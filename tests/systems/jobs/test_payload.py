"""J-8: short payloads have a faster reader, which must accept nothing more."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from jobwire.job.errors import RefusedError
from jobwire.systems.jobs.payload import check_payload
from tests.support import clause

_LONG: Final = " " * 5_000
"""Blanks behind a text change nothing, but for the reader that a long text has."""

_numbers: Final = ("1", "-0", "01", "1.", "1e5", "1e400", "-1E400", "9" * 400)
_words: Final = ("true", "null", "NaN", "Infinity", "'a'")
_strings: Final = ('""', '"a:b"', '"\\u0022"', '"\\"', '"\\ud800"', '"\x01"', '"\x7f"', '"\u2028"')
_scalars: Final = st.sampled_from([*_numbers, *_words, *_strings])
_names: Final = st.sampled_from(['"a"', '"b"', '"a:"', '"\\u0061"', '"\xe4"', '""', "a"])


def _containers(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    members = st.tuples(_names, values).map(": ".join)
    return st.one_of(
        st.lists(values, max_size=3).map(lambda parts: f"[{','.join(parts)}]"),
        st.lists(members, max_size=4).map(lambda parts: f"{{{' , '.join(parts)}}}"),
    )


_texts: Final = st.one_of(
    _containers(st.recursive(_scalars, _containers, max_leaves=8)),
    st.text('{}[]":,01eE+-. \t\nab\\u', max_size=12),
)


def _is_accepted(text: str) -> bool:
    try:
        check_payload(text)
    except RefusedError:
        return False
    return True


@clause("J-8")
@given(_texts)
def test_j08_short_and_long_texts_are_read_by_the_same_rules(text: str) -> None:
    assert _is_accepted(text) == _is_accepted(text + _LONG)


@clause("J-8")
@given(st.integers(60, 70))
def test_j08_short_and_long_texts_may_be_equally_deep(depth: int) -> None:
    text = '{"a":' * depth + "1" + "}" * depth
    assert _is_accepted(text) == _is_accepted(text + _LONG)
