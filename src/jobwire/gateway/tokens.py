"""Stream tokens: what a browser's EventSource sends instead of a header.

A token opens one path, for the tenant that asked for it, until it expires; it is checked when the
stream is opened. It is signed and not stored, so every gateway with the same secret knows it.
"""

import base64
import binascii
import hmac
import secrets
import time
from dataclasses import dataclass

import msgspec

from jobwire.gateway.auth import Keyring, Principal
from jobwire.gateway.problems import BAD_TOKEN, Problem


class _Claims(msgspec.Struct, array_like=True):
    path: str
    key: str
    expires: int


@dataclass(frozen=True, slots=True)
class Token:
    """A token and the end of its life, in seconds since 1970."""

    text: str
    expires: int


class TokenMaker:
    """Makes and reads tokens. Without a secret it takes one of its own, good until it ends."""

    def __init__(self, secret: str, ttl_s: float, keyring: Keyring) -> None:
        self._secret = secret.encode() or secrets.token_bytes(32)
        self._ttl_s = ttl_s
        self._keyring = keyring

    def make(self, principal: Principal, path: str) -> Token:
        """A token by which `principal` may open `path`."""
        expires = int(time.time() + self._ttl_s)
        claims = msgspec.json.encode(_Claims(path, principal.key, expires))
        return Token(f"{_text(claims)}.{_text(self._sign(claims))}", expires)

    def read(self, text: str, path: str) -> Principal:
        """Who may open this path with this token; a Problem if nobody."""
        try:
            claims_text, _, signature = text.partition(".")
            claims = _bytes(claims_text)
            if not hmac.compare_digest(self._sign(claims), _bytes(signature)):
                raise Problem(BAD_TOKEN)
            said = msgspec.json.decode(claims, type=_Claims)
        except (binascii.Error, ValueError):
            raise Problem(BAD_TOKEN) from None
        principal = self._keyring.named(said.key)
        if said.path != path or said.expires < time.time() or principal is None:
            raise Problem(BAD_TOKEN)
        # A token opens its stream and nothing else, whatever its maker may do.
        return Principal(principal.tenant, principal.scopes & {"read"}, principal.key)

    def _sign(self, claims: bytes) -> bytes:
        return hmac.digest(self._secret, b"jobwire stream token\0" + claims, "sha256")


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
