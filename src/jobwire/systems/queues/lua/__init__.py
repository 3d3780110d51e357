"""The Lua verbs of the BullMQ wire, a file each; `include/` has what they share."""
