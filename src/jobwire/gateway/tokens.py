"""Stream tokens: a browser's EventSource cannot send headers, so it sends a token in the URL.

A token opens one path, for the tenant that requested it, until it expires; it is checked when the
stream is opened. It is signed and not stored, so every gateway with the same secret accepts it.
"""

import base64
import binascii
import hmac
import secrets
import time
from dataclasses import dataclass

import msgspec

from jobwire.api.problems import BAD_TOKEN
from jobwire.gateway.auth import Keyring, Principal
from jobwire.gateway.problems import Problem


class _Claims(msgspec.Struct, array_like=True):
    path: str
    key: str
    expires: int


@dataclass(frozen=True, slots=True)
class Token:
    """A token and its expiry in seconds since 1970."""

    text: str
    expires: int


class TokenMaker:
    """Creates and verifies tokens. Without a secret it uses a random one per process."""

    def __init__(self, secret: str, ttl_s: float, keyring: Keyring) -> None:
        self._secret = secret.encode() or secrets.token_bytes(32)
        self._ttl_s = ttl_s
        self._keyring = keyring

    def make(self, principal: Principal, path: str) -> Token:
        """A token with which `principal` may open `path`."""
        expires = int(time.time() + self._ttl_s)
        claims = msgspec.json.encode(_Claims(path, principal.key, expires))
        return Token(f"{_text(claims)}.{_text(self._sign(claims))}", expires)

    def read(self, text: str, path: str) -> Principal:
        """The principal of a token for this path, or a Problem."""
        try:
            signed_text, _, signature = text.partition(".")
            signed = _bytes(signed_text)
            if not hmac.compare_digest(self._sign(signed), _bytes(signature)):
                raise Problem(BAD_TOKEN)
            claims = msgspec.json.decode(signed, type=_Claims)
        except (binascii.Error, ValueError):
            raise Problem(BAD_TOKEN) from None
        principal = self._keyring.named(claims.key)
        if claims.path != path or claims.expires < time.time() or principal is None:
            raise Problem(BAD_TOKEN)
        # A token opens its stream and nothing else, whatever scopes its key has.
        return Principal(principal.tenant, principal.scopes & {"read"}, principal.key)

    def _sign(self, claims: bytes) -> bytes:
        return hmac.digest(self._secret, b"jobwire stream token\0" + claims, "sha256")


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
