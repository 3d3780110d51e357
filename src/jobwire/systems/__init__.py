"""One package per documented protocol; names inside a package follow its protocol."""
