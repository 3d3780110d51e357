"""Programs that a supervisor starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jobwire.local.program import Program
from tests.support import clause

TWICE_READY = """#!/bin/sh
for word; do last=$word; done
printf 'ready\\nready\\n' > "/dev/fd/$last"
exec sleep 60
"""


@clause("O-1")
def test_o1_what_follows_the_ready_line_at_once_is_not_a_start_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: a worker with --reload and its reloader both report the first start; where both
    lines came before the supervisor looked, `jobwire up` ended with them as its error."""
    python = tmp_path / "python"
    python.write_text(TWICE_READY)
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    started = Program("worker", ["worker"], env=dict[str, str], grace_s=5)
    try:
        started.start()
        assert started.alive
        assert started.fault == ""
    finally:
        started.stop()
