"""One lifecycle suite for all wires: `lifecycle.py`; `test_<wire>.py` runs it on a wire."""

import pytest

pytest.register_assert_rewrite("tests.conformance.lifecycle", "tests.conformance.random_lifecycles")
