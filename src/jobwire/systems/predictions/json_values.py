"""JSON of others, read member by member: a value of another kind counts as absent. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, cast

from jobwire.json_depth import bounded

parse: Final = bounded(json.loads)
"""Any JSON; ValueError for what is not, or is nested too deeply."""


def loads(body: bytes) -> Mapping[str, object] | None:
    """The JSON object in these bytes; None for anything else."""
    try:
        loaded: object = parse(body)
    except ValueError:
        return None
    return cast("Mapping[str, object]", loaded) if isinstance(loaded, dict) else None


def mapping(value: object) -> Mapping[str, object]:
    """An object; empty for anything else."""
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def items(value: object) -> list[object]:
    """A list; empty for anything else."""
    return cast("list[object]", value) if isinstance(value, list) else []


def text(value: object) -> str:
    """A string that can be encoded, with `?` for lone surrogates; empty for anything else."""
    if not isinstance(value, str):
        return ""
    return value if value.isascii() else value.encode(errors="replace").decode()


def dumps(value: object, *, indent: int | None = None) -> bytes:
    """JSON that keeps every member as it was, also a string that has no UTF-8."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent).encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent).encode()


def integer(value: object, below: int = 2**63) -> int | None:
    """A whole number within bounds; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool) and -below < value < below:
        return value
    return None
