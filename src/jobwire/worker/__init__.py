"""The worker: holds jobs and runs their handlers."""
