"""The Lua verbs, loaded once. The connection sends them by their digest."""

from collections.abc import Awaitable
from typing import Final

from jobwire.systems.queues.contract import Keys
from jobwire.valkey import Arg, Connection, Reply, Script, load_scripts

SCRIPTS: Final = load_scripts("jobwire.systems.queues.lua")


def script(name: str) -> Script:
    return SCRIPTS[name]


def run_read(
    verb: str, connection: Connection, keys: Keys, now_ms: int, *args: Arg
) -> Awaitable[Reply]:
    """Run a script that writes nothing on one queue: its argument `extras` does not matter."""
    return connection.run(SCRIPTS[verb], (keys.meta,), (now_ms, 0, *args))
