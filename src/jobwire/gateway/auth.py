"""Authentication: API keys with a tenant and scopes.

Keys are long and random, so one round of SHA-256 suffices; only hashes are stored. Without keys
every caller is the default tenant with all scopes; `loopback` rejects requests that do not come
from this machine, `local_users` those of its other users.
"""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from jobwire.api.operation import Scope
from jobwire.api.problems import BAD_KEY, FORBIDDEN, UNAUTHORIZED
from jobwire.gateway.problems import Problem
from jobwire.gateway.settings import KeySettings, ScopeName

KEY_PREFIX: Final = "jw_"
CHALLENGE: Final = ((b"www-authenticate", b'Bearer realm="jobwire"'),)
_ALL: Final = frozenset[ScopeName](("submit", "read", "signal", "admin"))


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated caller. A feature shows it only the data of its tenant."""

    tenant: str
    scopes: frozenset[ScopeName]
    key: str
    """The key's name, for limits and logs."""


LOCAL: Final = Principal("default", _ALL, "local")
ANONYMOUS: Final = Principal("", frozenset(), "")


def new_key() -> tuple[str, str]:
    """A new API key, and its hash for the settings."""
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    return key, hash_of(key)


def hash_of(key: str) -> str:
    """The form in which the settings store a key."""
    return "sha256:" + sha256(key.encode()).hexdigest()


class Keyring:
    """All keys, of the settings and of the file that the gateway follows.

    Without keys, `exposed` decides: a server that others can reach admits no request to a
    route with a scope, one on loopback admits this machine to all.
    """

    def __init__(self, keys: Iterable[KeySettings], *, exposed: bool = False) -> None:
        self._keys: tuple[KeySettings, ...] = ()
        self._by_digest: dict[bytes, Principal] = {}
        self._by_name: dict[str, Principal] = {}
        self.replace(keys)
        self.is_open = not self._by_name and not exposed
        """Whether every caller on this machine has all scopes."""

    def replace(self, keys: Iterable[KeySettings]) -> list[str]:
        """Know these keys from now on; returns the names of those that were valid and are not any
        more, or that have another hash, tenant or scopes."""
        before, self._keys = self._keys, tuple(keys)
        self._by_digest, self._by_name = {}, {}
        for key in self._keys:
            scopes = _ALL if "admin" in key.scopes else frozenset(key.scopes)
            principal = Principal(key.tenant, scopes, key.name)
            self._by_digest[bytes.fromhex(key.hash.removeprefix("sha256:"))] = principal
            self._by_name[key.name] = principal
        return [key.name for key in before if key not in self._keys]

    def named(self, name: str) -> Principal | None:
        """The principal of a key by its name; None if there is none."""
        return LOCAL if self.is_open and name == LOCAL.key else self._by_name.get(name)

    def authenticate(self, authorization: bytes | None) -> Principal:
        """The principal of an Authorization header, or a Problem."""
        if self.is_open:
            return LOCAL
        if authorization is None:
            raise Problem(UNAUTHORIZED, headers=CHALLENGE)
        scheme, _, key = authorization.partition(b" ")
        if scheme.lower() != b"bearer" or not key:
            raise Problem(UNAUTHORIZED, headers=CHALLENGE)
        # O-6: only digests are compared, and a caller cannot choose the digest of a key: the time
        # of the look-up reveals nothing about a stored key.
        principal = self._by_digest.get(sha256(key.strip()).digest())
        if principal is None:
            raise Problem(BAD_KEY, headers=CHALLENGE)
        return principal


def require(principal: Principal, scope: Scope) -> None:
    """Raise a Problem that names the scope if the principal does not have it."""
    if scope != "public" and scope not in principal.scopes:
        raise Problem(FORBIDDEN, f"the API key {principal.key!r} does not have the scope {scope!r}")
