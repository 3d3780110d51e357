"""The signature of a webhook, as Replicate and others make it (P-14). Pure.

Signed are `{id}.{timestamp}.{raw body}` with HMAC-SHA256; the header lists several signatures
while a secret is rotated. The URL is not signed: the caller binds the body to its task.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from typing import Final

HEADERS: Final = ("webhook-id", "webhook-timestamp", "webhook-signature")
TOLERANCE_S: Final = 300
_SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - no secret, the mark of one
_MAX_SIGNATURES: Final = 16


def secret_bytes(secret: str) -> bytes:
    """The key inside `whsec_…`; ValueError if it is none."""
    try:
        key = b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    except Base64Error:
        key = b""
    if not key:
        raise ValueError("the webhook secret must be whsec_ and base64, as the provider shows it")
    return key


def refusal(key: bytes, headers: Mapping[str, str], body: bytes, now_s: int) -> str | None:
    """Why a webhook is refused; None if it is signed with `key` and fresh."""
    lowered = {name.lower(): value for name, value in headers.items()}
    webhook_id, stamp, signatures = (lowered.get(name, "") for name in HEADERS)
    if not (webhook_id and stamp and signatures):
        return "unsigned"
    signed = b".".join((webhook_id.encode(), stamp.encode(), body))
    expected = b64encode(hmac.digest(key, signed, "sha256"))
    matched = False
    for item in signatures.split()[:_MAX_SIGNATURES]:
        version, _, value = item.partition(",")
        # A malformed item or another version is skipped: the right one may follow.
        if version == "v1" and hmac.compare_digest(expected, value.encode()):
            matched = True
    if not matched:
        return "the signature does not match"
    # The time is part of what is signed, so it is believed only now.
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12):
        return "the timestamp is malformed"
    if abs(now_s - int(stamp)) > TOLERANCE_S:
        return "the timestamp is stale"
    return None
