"""Which keys an object can have on every store."""

from __future__ import annotations

import re
from typing import Final

_MAX_BYTES: Final = 1024
# Keys that some store or library would change.
_BAD: Final = re.compile(r"^$|^/|/$|//|(^|/)\.{1,2}(/|$)|[\x00-\x1f\x7f\\]")


def is_valid_key(key: str) -> bool:
    """Whether an object can have this key."""
    return not _BAD.search(key) and len(key.encode(errors="replace")) <= _MAX_BYTES
