"""A pytest fixture with a real Valkey: `pytest_plugins = ["jobwire.testing.pytest_plugin"]`.

The server starts once per test session, on loopback, in a folder that pytest removes. It needs the
extra `embedded`.
"""

from collections.abc import Iterator

import pytest

from jobwire.local import LocalValkey


@pytest.fixture(scope="session")
def jobwire_valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real server that stops after the tests."""
    with LocalValkey(tmp_path_factory.mktemp("jobwire-valkey")) as server:
        yield server.url
