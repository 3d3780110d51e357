"""The same life of a job over every wire: `life.py` is the suite, a file a wire runs it."""

import pytest

pytest.register_assert_rewrite("tests.conformance.lifecycle", "tests.conformance.random_lifecycles")
