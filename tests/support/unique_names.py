"""Names that no other test uses."""

from __future__ import annotations

import secrets


class Fresh:
    """Call it for a new name; a prefix describes its purpose."""

    def __call__(self, prefix: str = "test") -> str:
        # Not `random`: the suite seeds it, and every parallel worker alike.
        return f"{prefix}-{secrets.token_hex(5)}"
