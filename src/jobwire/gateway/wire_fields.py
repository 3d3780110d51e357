"""The keys of a job on its server, in the form of `api/wire.py`: keys, fields, lifetimes.

A wire reads its own keys and answers with a `WireJob`. Values are those of the server, cut where
they are long; nothing is written.
"""

from typing import Final

from jobwire.api.wire import WireField

MAX_VALUE: Final = 4096
"""Characters of a value that are shown."""


def cut(name: str, text: str, *, extra: bool = False) -> WireField:
    """A field, with the beginning of its value."""
    return WireField(name, text[:MAX_VALUE], max(0, len(text) - MAX_VALUE), extra)
