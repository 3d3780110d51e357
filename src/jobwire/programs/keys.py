"""New API keys, for `jobwire key`."""

from jobwire.gateway.auth import new_key as new_api_key

__all__ = ["new_api_key"]
