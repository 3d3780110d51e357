"""The Lua scripts of the wire, loaded once. Nothing here calls the server."""

from typing import Final

from jobwire.valkey import load_scripts

SCRIPTS: Final = load_scripts("jobwire.systems.images.lua")
