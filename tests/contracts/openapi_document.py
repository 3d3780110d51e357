"""The OpenAPI document of the whole gateway as a file: its diff shows a change of the API.

    make openapi        writes `tests/contracts/openapi.json` anew

The keys are sorted, and the version of the package is left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, cast

from tools.docs_reference import openapi

FILE: Final = Path(__file__).with_name("openapi.json")
Document = dict[str, Any]


def served() -> Document:
    """The document of a gateway with all systems, which is started for it."""
    document = cast(Document, json.loads(json.dumps(openapi())))
    document["info"]["version"] = "any"
    return document


def as_text(document: Document) -> str:
    """The text of the file."""
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def differences(before: object, after: object, place: str = "") -> list[str]:
    """The places, as JSON pointers, where two documents differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        left, right = cast(Document, before), cast(Document, after)
        return [
            line
            for name in sorted(left.keys() | right.keys())
            for line in differences(
                left.get(name, _ABSENT), right.get(name, _ABSENT), f"{place}/{name}"
            )
        ]
    return [] if before == after else [place]


_ABSENT: Final = object()

if __name__ == "__main__":
    FILE.write_text(as_text(served()), encoding="utf-8")
    print(f"written: {FILE}")
