"""The Valkey toolkit; usable alone."""
