"""What stands in the shell of a caller does not decide about a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.environment import clean
from tests.support.program import ROOT

OF_A_SHELL = {
    "AWS_PROFILE": "nobody",
    "COLUMNS": "40",
    "FORCE_COLOR": "1",
    "GIT_DIR": "/nonexistent",
    "JOBWIRE_GATEWAY_PORT": "1",
    "JOB_TTL_S": "1",
    "MAKEFLAGS": "--jobs=4",
    "NODE_OPTIONS": "--unknown",
    "OPENAI_API_KEY": "sk-secret",
    "PYTHON": "/nonexistent/python",
    "PYTHONWARNINGS": "error",
    "S3_BUCKET": "of-another-program",
}


def test_variables_that_change_what_is_tested_are_removed() -> None:
    kept = {
        "HOME": "/home/me",
        "JOBWIRE_TEST_ALL": "1",
        "NODE_EXTRA_CA_CERTS": "/ca.pem",
        "PATH": "/bin",
        "https_proxy": "http://proxy.test",
    }
    environ = {**OF_A_SHELL, **kept, "no_proxy": "inside.test"}
    clean(environ)
    loopback = "localhost,127.0.0.1,::1"
    assert environ == {
        **kept,
        "NO_PROXY": loopback,
        "no_proxy": f"{loopback},inside.test",
    }


def test_a_run_has_the_cleaned_environment_and_programs_of_tests_keep_theirs(
    tmp_path: Path,
) -> None:
    names = sorted(OF_A_SHELL)
    seen = f"import os, tests; print([n for n in {names} if n in os.environ])"
    env = {**os.environ, **OF_A_SHELL, "PYTHONPATH": str(ROOT)}
    for first, expected in (("import pytest; ", "[]"), ("", str(names))):
        done = subprocess.run(
            [sys.executable, "-Wignore", "-c", first + seen],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == expected
