"""Helpers for tests of programs that use jobwire.

    from jobwire.testing import run

    async def test_chat() -> None:
        ran = await run(app, "chat", {"prompt": "hello"})
        assert ran.result == "Hello!"

`run` (and `run_sync`) runs a handler in memory, with the real worker: checked payload, events,
retries, timeouts. For tests with a real Valkey there is a pytest fixture:

    pytest_plugins = ["jobwire.testing.pytest_plugin"]     # gives `jobwire_valkey`, a URL

`run` connects to nothing.
"""

from jobwire.testing.memory import Ran, Said, run, run_sync

__all__ = ["Ran", "Said", "run", "run_sync"]
