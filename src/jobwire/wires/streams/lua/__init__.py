"""The Lua verbs of the Streams wire, a file each; `include/` has what they share."""
