"""The Lua scripts of the Streams wire, one file each; `include/` has the shared parts."""
