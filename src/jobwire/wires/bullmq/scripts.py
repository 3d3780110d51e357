"""The Lua verbs, loaded once, for the queue and the consumer to run.

The connection sends them by their digest. Nothing here talks to a server.
"""

from typing import Final

from jobwire.valkey import Script, load_scripts

SCRIPTS: Final = load_scripts("jobwire.wires.bullmq.lua")


def script(name: str) -> Script:
    return SCRIPTS[name]
