"""Masks secrets in text of a model server, before anything is cut or quoted. Pure.

A server may repeat the key in an error, in another case or encoded. A part of a key at the end of a
text that was cut is masked too.
"""

import base64
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

MASK: Final = "••••"
_MIN_PART: Final = 6
"""Characters of a key at the end of a text that are enough to mask."""


class SecretMask:
    """Replaces every form of these secrets."""

    __slots__ = ("_pattern", "_secrets")

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = [each for each in secrets if each]
        forms = {form for each in self._secrets for form in _forms(each)}
        longest_first = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE)

    def __call__(self, text: str) -> str:
        """The text without the secrets."""
        if not self._secrets:
            return text
        text = self._pattern.sub(MASK, text)
        for secret in self._secrets:
            folded, lower = secret.lower(), text.lower()
            for length in range(min(len(secret) - 1, len(text)), _MIN_PART - 1, -1):
                if lower.endswith(folded[:length]):
                    text = text[:-length] + MASK
                    break
        return text


def _forms(secret: str) -> set[str]:
    forms = {secret, quote(secret, safe="")}
    for text in (secret, f"Bearer {secret}", f":{secret}"):
        # Inside a longer text the key may start at any of three offsets; the first and the last
        # characters of its base64 form depend on the neighbors.
        for offset in range(3):
            encoded = base64.b64encode(b"\0" * offset + text.encode()).decode().rstrip("=")
            core = encoded[(0, 2, 3)[offset] : len(encoded) - 1]
            if len(core) >= _MIN_PART:
                forms |= {core, core.replace("+", "-").replace("/", "_")}
    return forms
