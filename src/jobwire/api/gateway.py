"""The gateway's own operations: the caller's key, stream tokens."""

from datetime import datetime
from typing import Annotated, Final

from msgspec import Meta, Struct

from jobwire.api.operation import Operation

# ── requests ─────────────────────────────────────────────────────────────────────────────────────


class StreamTokenRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The stream to open."""

    path: Annotated[
        str, Meta(max_length=2048, description="the path of the stream, without a query")
    ]


# ── answers ──────────────────────────────────────────────────────────────────────────────────────


class MeBody(Struct, frozen=True):
    """The caller's API key."""

    key: Annotated[str, Meta(description="its name; `local` where the gateway has no keys")]
    tenant: str
    scopes: list[str]
    signed_in: Annotated[bool, Meta(description="false: the gateway has no keys")]
    read_only: Annotated[bool, Meta(description="whether this gateway has no routes that change")]
    version: str
    features: Annotated[list[str], Meta(description="what this gateway serves, as `images`")]


class StreamToken(Struct, frozen=True):
    """A token, and the URL of the stream with it."""

    token: str
    url: str
    expires_at: Annotated[datetime, Meta(tz=True)]


# ── operations ───────────────────────────────────────────────────────────────────────────────────

ME: Final = Operation(
    "GET",
    "/v1/me",
    "read",
    "The caller's key, tenant and scopes",
    tag="health",
    answer=MeBody,
    example={
        "key": "ops",
        "tenant": "default",
        "scopes": ["read", "submit"],
        "signed_in": True,
        "read_only": False,
        "version": "0.1.0",
        "features": ["jobs", "images"],
    },
)
MAKE_STREAM_TOKEN: Final = Operation(
    "POST",
    "/v1/stream-tokens",
    "read",
    "Make a token that opens one event stream",
    tag="streams",
    description="It expires soon, and is sent as `?token=`.",
    body=StreamTokenRequest,
    body_example={"path": "/v1/jobs/3f2a91/events"},
    answer=StreamToken,
    example={
        "token": "WyIvdjEi.c2ln",
        "url": "/v1/jobs/3f2a91/events?token=WyIvdjEi.c2ln",
        "expires_at": "2026-01-31T12:00:00Z",
    },
    status=201,
)
