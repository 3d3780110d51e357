"""Tests of jobwire, through its public interfaces."""

import os
import sys
from pathlib import Path


def _use_a_home_that_can_be_written() -> None:
    """What is kept between runs, and what npm and our programs keep, is below the home."""
    if not os.access(Path.home(), os.W_OK):
        home = Path(sys.prefix) / "home"
        home.mkdir(exist_ok=True)
        os.environ["HOME"] = str(home)


_use_a_home_that_can_be_written()
if "pytest" in sys.modules:  # not in the programs of tests, which have settings on purpose
    from tests import environment

    environment.clean(os.environ)
