"""Whole processes on real servers, which are killed, frozen and cut off."""

import pytest

pytest.register_assert_rewrite("tests.stories.site")
