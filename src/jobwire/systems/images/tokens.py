"""Upload tokens: a JWT signed with Ed25519 by the API, verified by the upload gateway (I-10).

The gateway has the public key only. The algorithm is fixed: a token that names another one is
refused, whatever its signature. One token uploads one image, once: the claim of the image (I-2)
sees to that, not the token.
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from jobwire.systems.images.contract import CONTENT_TYPES, IMAGE_ID, storage_key

ALGORITHM: Final = "EdDSA"
_CLAIMS: Final = ("image_id", "storage_key", "content_type", "max_size", "exp", "jti")
_MAX_TOKEN: Final = 2048
_BEGIN: Final = "-----BEGIN"
_BASE64: Final = re.compile(r"[A-Za-z0-9+][A-Za-z0-9+/=\s]{39,}")
_MAKE_KEYS: Final = "to make a pair: jobwire images keys"
_Part = Annotated[float, msgspec.Meta(ge=0, le=1)]


class BadToken(Exception):
    """The token is not signed by our key; the text is for the log."""


class RefusedToken(BadToken):
    """The token is signed by our key and not accepted; the text is for its sender, too."""


class BadKey(ValueError):
    """A key of the settings cannot be used; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadGrant:
    """What a valid token permits."""

    image_id: str
    storage_key: str
    content_type: str
    max_size: int
    expires_at: int
    """Seconds since the epoch."""
    tenant: str = ""
    """Whose share of the upload slots it takes (I-44); empty: there is one tenant."""
    areas: tuple[tuple[float, ...], ...] = ()
    """Drawn by a person, to be hidden besides what is detected (I-38)."""


class TokenIssuer:
    """Signs tokens; the API has one."""

    def __init__(self, private_key: Ed25519PrivateKey, life: timedelta) -> None:
        self._key = private_key
        self._life = life

    def issue(
        self,
        image_id: str,
        *,
        content_type: str,
        max_size: int,
        now: datetime,
        tenant: str = "",
        areas: Sequence[Sequence[float]] = (),
    ) -> tuple[str, datetime]:
        """A token for one image, and when it expires."""
        expires_at = (now + self._life).replace(microsecond=0)
        claims: dict[str, Any] = {
            "image_id": image_id,
            "storage_key": storage_key(image_id),
            "content_type": content_type,
            "max_size": max_size,
            "exp": int(expires_at.timestamp()),
            "jti": secrets.token_urlsafe(12),
        }
        if tenant:
            claims["tenant"] = tenant
        if areas:
            claims["areas"] = [[round(part, 4) for part in area] for area in areas]
        return jwt.encode(claims, self._key, algorithm=ALGORITHM), expires_at


class TokenVerifier:
    """Verifies tokens; the upload gateway has one."""

    def __init__(self, public_key: Ed25519PublicKey) -> None:
        self._key = public_key

    def verify(self, token: str) -> UploadGrant:
        """What the token permits; BadToken if it is invalid, expired or not for uploads.

        Only who has the key learns why: the signature is checked before the claims.
        """
        if len(token) > _MAX_TOKEN:
            raise BadToken("the token is too long")
        try:
            claims: dict[str, object] = jwt.decode(
                token, self._key, algorithms=[ALGORITHM], options={"require": list(_CLAIMS)}
            )
        except (jwt.DecodeError, jwt.InvalidAlgorithmError) as error:
            raise BadToken(f"{type(error).__name__}: {error}") from error
        except jwt.InvalidTokenError as error:  # of the claims
            raise RefusedToken(_claim_fault(error)) from error
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise BadToken(f"{type(error).__name__}: {error}") from error
        image_id, max_size, expires_at = claims["image_id"], claims["max_size"], claims["exp"]
        # Signed by the API, and still checked: the id becomes part of keys and of file names.
        if not isinstance(image_id, str) or not IMAGE_ID.fullmatch(image_id):
            raise RefusedToken("its image_id is not an image id")
        if claims["storage_key"] != storage_key(image_id):
            raise RefusedToken(f"its storage_key must be {storage_key(image_id)}")
        if claims["content_type"] not in CONTENT_TYPES:
            raise RefusedToken(f"its content_type must be one of {', '.join(CONTENT_TYPES)}")
        if not isinstance(max_size, int) or isinstance(max_size, bool) or max_size < 1:
            raise RefusedToken("its max_size must be a number of bytes")
        return UploadGrant(
            image_id=image_id,
            storage_key=storage_key(image_id),
            content_type=str(claims["content_type"]),
            max_size=max_size,
            expires_at=int(str(expires_at).partition(".")[0]),
            tenant=str(claims.get("tenant", "")),
            areas=_areas(claims.get("areas", [])),
        )


def _areas(claim: object) -> tuple[tuple[float, ...], ...]:
    try:
        return msgspec.convert(claim, tuple[tuple[_Part, _Part, _Part, _Part], ...])
    except msgspec.ValidationError:
        raise RefusedToken("its areas must be lists of four numbers from 0 to 1") from None


def _claim_fault(error: jwt.PyJWTError) -> str:
    match error:
        case jwt.ExpiredSignatureError():
            return "it has expired"
        case jwt.MissingRequiredClaimError():
            return f"it lacks the claim {error.claim}"
        case jwt.InvalidAudienceError():
            return "it has the claim aud, which uploads do not have"
        case _:
            return f"a claim is not valid: {error}"


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────


def new_key_pair() -> tuple[bytes, bytes]:
    """A new pair, as PEM: private and public."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private, public_pem(key)


def public_pem(key: Ed25519PrivateKey) -> bytes:
    """The public key that belongs to a private one."""
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def read_private_key(given: str) -> Ed25519PrivateKey:
    """A key as PEM text, or the path of a PEM file."""
    return load_private_key(*_pem(given))


def read_public_key(given: str) -> Ed25519PublicKey:
    """A key as PEM text, or the path of a PEM file."""
    pem, source = _pem(given)
    try:
        key = serialization.load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise BadKey(f"{source}is not an Ed25519 public key in PEM form; {_MAKE_KEYS}")
    return key


def load_private_key(pem: bytes, source: str = "") -> Ed25519PrivateKey:
    """A key as PEM bytes; an error names their `source`."""
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: it has a password
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise BadKey(f"{source}is not an Ed25519 private key in PEM form; {_MAKE_KEYS}")
    return key


def _pem(given: str) -> tuple[bytes, str]:
    """The bytes of a key, and for errors the file that they are from."""
    if given.lstrip().startswith(_BEGIN):
        # In an environment variable the line ends are often written as two characters.
        return given.replace("\\n", "\n").strip().encode(), ""
    if _BASE64.fullmatch(given):  # an error must not print a key
        raise BadKey(f"lacks the line {_BEGIN} …; give the whole PEM text, or the path of a file")
    try:
        return Path(given).read_bytes(), f"the file {given} "
    except (OSError, ValueError) as error:  # ValueError: the path contains NUL
        reason = getattr(error, "strerror", None) or error
        raise BadKey(f"cannot read the file {given} ({reason}); {_MAKE_KEYS}") from error
