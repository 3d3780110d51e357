"""API keys for `jobwire key` and `jobwire keys`."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from jobwire.gateway.auth import new_key as new_api_key
from jobwire.gateway.keys_file import changed_keys, read_keys
from jobwire.gateway.settings import KeySettings, ScopeName
from jobwire.private_files import UnusableFile

__all__ = ["create_key", "new_api_key", "read_keys", "revoke_keys"]


def create_key(path: Path, name: str, tenant: str, scopes: Sequence[str]) -> str | None:
    """Add a key to the file and return it; None if there is one of this name."""
    key, hashed = new_api_key()
    made = KeySettings(name, hashed, tuple(cast("Sequence[ScopeName]", scopes)), tenant)
    for field, problem in made.check():
        raise UnusableFile(f"{field} {problem}")
    with changed_keys(path) as keys:
        if name in keys:
            return None
        keys[name] = made
    return key


def revoke_keys(path: Path, names: Sequence[str]) -> Sequence[str]:
    """Remove keys from the file; returns those that it does not have, and then removes none."""
    with changed_keys(path) as keys:
        unknown = [name for name in names if name not in keys]
        if not unknown:
            for name in names:
                keys.pop(name, None)
    return unknown
