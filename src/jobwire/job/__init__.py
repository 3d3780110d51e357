"""The heart: what a job is, and what may happen to it. Pure."""
