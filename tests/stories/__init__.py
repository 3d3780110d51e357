"""Whole processes on real servers, killed, frozen and cut off for real."""

import pytest

pytest.register_assert_rewrite("tests.stories.site")
