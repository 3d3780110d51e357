"""Run the tests that failed in the last run once more, alone, and report them as flaky.

A timing fault on a loaded machine fails one test of some thousands; a regression fails again.
At most `LIMIT` tests are run again, and each is printed, so that it gets repaired.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import cast

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
LIMIT = 3


def main() -> int:
    if not LAST_FAILED.exists():
        sys.stderr.write("no failed test is on record: the run itself broke\n")
        return 1
    failed = sorted(cast("dict[str, bool]", json.loads(LAST_FAILED.read_text())))
    if not 0 < len(failed) <= LIMIT:
        sys.stderr.write(f"{len(failed)} tests failed; at most {LIMIT} are run again\n")
        return 1
    for test in failed:
        sys.stderr.write(f"FLAKY? running once more, alone: {test}\n")
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *failed], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
