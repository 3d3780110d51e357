"""One file per version, in the order of their numbers."""
