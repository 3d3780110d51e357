"""AWS Signature Version 4 for S3 requests. Pure.

Used by `signed.py` for the calls that obstore does not have: lifecycle, versions, unfinished
uploads, creating a bucket.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Final
from urllib.parse import quote

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_UNRESERVED: Final = "-_.~"


@dataclass(frozen=True, slots=True)
class SigningRequest:
    """One request; `path` and `query` are not percent-encoded."""

    method: str
    host: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def target(self) -> str:
        """Path and query as they go over the wire."""
        query = canonical_query(self.query)
        return canonical_path(self.path) + (f"?{query}" if query else "")


def canonical_path(path: str) -> str:
    """The path percent-encoded once, slashes kept."""
    return quote(path, safe=f"/{_UNRESERVED}")


def canonical_query(query: Mapping[str, str]) -> str:
    """Sorted by name and percent-encoded; an empty value keeps its equals sign."""
    pairs = ((quote(k, safe=_UNRESERVED), quote(v, safe=_UNRESERVED)) for k, v in query.items())
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))


def signed_headers(
    request: SigningRequest,
    *,
    access_key: str,
    secret_key: str,
    region: str,
    now: datetime,
    session_token: str = "",
) -> dict[str, str]:
    """All headers to send, including the signature."""
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    payload = sha256(request.body).hexdigest()
    headers = {
        **{name.lower(): " ".join(value.split()) for name, value in request.headers.items()},
        "host": request.host,
        "x-amz-content-sha256": payload,
        "x-amz-date": stamp,
    }
    if session_token:
        headers["x-amz-security-token"] = session_token
    names = ";".join(sorted(headers))
    canonical = "\n".join(
        [
            request.method,
            canonical_path(request.path),
            canonical_query(request.query),
            *(f"{name}:{headers[name]}" for name in sorted(headers)),
            "",
            names,
            payload,
        ]
    )
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    to_sign = "\n".join([_ALGORITHM, stamp, scope, sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    return {
        **headers,
        "authorization": (
            f"{_ALGORITHM} Credential={access_key}/{scope}, "
            f"SignedHeaders={names}, Signature={signature}"
        ),
    }
