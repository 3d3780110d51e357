"""Who asks, and what they may do: API keys with a tenant and scopes.

Keys are long and random, so one round of SHA-256 is all the hashing they need; only the hashes
are ever kept. Without keys everybody on this machine is the default tenant with every right, and
`guard` makes sure that it is really this machine that asks.
"""

import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Literal

from jobwire.gateway.problems import BAD_KEY, FORBIDDEN, UNAUTHORIZED, Problem
from jobwire.gateway.settings import KeySettings, ScopeName

Scope = Literal["public", "submit", "read", "admin"]
"""What a route asks for: `public` is open to all, `admin` includes the other two."""

KEY_PREFIX: Final = "jw_"
_CHALLENGE: Final = ((b"www-authenticate", b'Bearer realm="jobwire"'),)
_ALL: Final = frozenset[ScopeName](("submit", "read", "admin"))


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. A room shows a principal only what belongs to its tenant."""

    tenant: str
    scopes: frozenset[ScopeName]
    key: str
    """The key's name, for limits and logs."""


LOCAL: Final = Principal("default", _ALL, "local")
NOBODY: Final = Principal("", frozenset(), "")


def new_key() -> tuple[str, str]:
    """A new API key and the hash that goes into the settings."""
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    return key, hash_of(key)


def hash_of(key: str) -> str:
    """What the settings keep of a key."""
    return "sha256:" + sha256(key.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _Known:
    digest: bytes
    principal: Principal

    @classmethod
    def of(cls, key: KeySettings) -> "_Known":
        scopes = _ALL if "admin" in key.scopes else frozenset(key.scopes)
        digest = bytes.fromhex(key.hash.removeprefix("sha256:"))
        return cls(digest, Principal(key.tenant, scopes, key.name))


class Keyring:
    """All keys of the settings."""

    def __init__(self, keys: Iterable[KeySettings]) -> None:
        known = [_Known.of(key) for key in keys]
        self._by_hash = {key.digest: key for key in known}
        self._by_name = {key.principal.key: key.principal for key in known}

    @property
    def is_open(self) -> bool:
        """Whether there are no keys, so that everybody on this machine may do everything."""
        return not self._by_hash

    def named(self, name: str) -> Principal | None:
        """The principal of a key that is still in the settings."""
        return LOCAL if self.is_open and name == LOCAL.key else self._by_name.get(name)

    def authenticate(self, authorization: bytes | None) -> Principal:
        """The principal behind an Authorization header; a Problem if it is nobody's."""
        if not self._by_hash:
            return LOCAL
        if authorization is None:
            raise Problem(UNAUTHORIZED, headers=_CHALLENGE)
        scheme, _, key = authorization.partition(b" ")
        if scheme.lower() != b"bearer" or not key:
            raise Problem(UNAUTHORIZED, headers=_CHALLENGE)
        digest = sha256(key.strip()).digest()
        known = self._by_hash.get(digest)
        # The look-up is by a hash of a hash that nobody can aim; the proof is the full compare.
        if known is None or not hmac.compare_digest(known.digest, digest):
            raise Problem(BAD_KEY, headers=_CHALLENGE)
        return known.principal


def require(principal: Principal, scope: Scope) -> None:
    """Let the principal pass, or say which scope is missing."""
    if scope != "public" and scope not in principal.scopes:
        raise Problem(FORBIDDEN, f"the API key {principal.key!r} does not have the scope {scope!r}")
