"""Parts of error messages that several packages need. Imports no other module of jobwire."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

_MSGSPEC: Final = re.compile(
    r"^(?P<problem>.*?)(?: - at (?:`key` in )?`\$(?P<place>.*)`)?$", re.DOTALL
)


class MsgspecFault(NamedTuple):
    """An error of msgspec, and where it is: empty, or `.messages[0].role`."""

    problem: str
    place: str


def did_you_mean(name: str, known: Iterable[str], *, prefix: str = "", quote: str = "'") -> str:
    """`; did you mean 'x'?`, or nothing if no known name is like `name`."""
    from difflib import get_close_matches  # imported only for an error

    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {quote}{prefix}{near[0]}{quote}?" if near else ""


def msgspec_fault(error: Exception) -> MsgspecFault:
    """The two parts of a msgspec ValidationError's text."""
    found = _MSGSPEC.match(str(error))
    assert found is not None
    return MsgspecFault(found["problem"], found["place"] or "")


def plural(count: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
