"""The real servers that jobwire brings along."""
