"""Further variants of a test: run by `make chaos`, left out of the suite to keep it short."""

from __future__ import annotations

import os
from typing import Final

import pytest

_ALL: Final = bool(os.environ.get("JOBWIRE_TEST_VARIANTS"))

only_with_variants: Final = pytest.mark.skipif(
    not _ALL, reason="expected: part of `make chaos` (JOBWIRE_TEST_VARIANTS=1)"
)
"""Leaves a whole test to `make chaos`."""


def variants(*names: str) -> tuple[str, ...]:
    """The parameters, if all variants are asked for (`JOBWIRE_TEST_VARIANTS=1`)."""
    return names if _ALL else ()
