"""Further variants of a test: run by `make chaos`, left out of the suite to keep it short."""

from __future__ import annotations

import os
from typing import Final

_ALL: Final = "JOBWIRE_TEST_VARIANTS"


def variants(*names: str) -> tuple[str, ...]:
    """The parameters, if all variants are asked for (`JOBWIRE_TEST_VARIANTS=1`)."""
    return names if os.environ.get(_ALL) else ()
