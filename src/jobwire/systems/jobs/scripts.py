"""The Lua scripts, loaded once, for the queue, the engine and maintenance.

The connection sends them by their digest. Nothing here calls the server.
"""

from typing import Final

from jobwire.valkey import Script, load_scripts

SCRIPTS: Final = load_scripts("jobwire.systems.jobs.lua")


def script(name: str) -> Script:
    return SCRIPTS[name]
