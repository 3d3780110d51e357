"""The gateway's own operations: health, metrics, documents, the caller's key, stream tokens, and
what only its operator may read."""

from datetime import datetime
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from jobwire.api.operation import Operation
from jobwire.api.problems import NOT_READY

STATES: Final = ("ready", "degraded", "starting", "restarting", "down")
VERDICTS: Final = ("ok", "note", "fault", "unreachable")

# ── requests ─────────────────────────────────────────────────────────────────────────────────────


class StreamTokenRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The stream to open."""

    path: Annotated[
        str, Meta(max_length=2048, description="the path of the stream, without a query")
    ]


# ── answers ──────────────────────────────────────────────────────────────────────────────────────


class Alive(Struct, frozen=True):
    """The response of /livez."""

    status: Annotated[str, Meta(extra_json_schema={"enum": ["alive"]})]


class PartHealth(Struct, frozen=True, omit_defaults=True):
    """One part in the response of /readyz."""

    name: str
    state: Annotated[str, Meta(extra_json_schema={"enum": list(STATES)})]
    latency_ms: float | None = None
    note: str = ""
    what_to_do: str = ""


class Ready(Struct, frozen=True):
    """Every part is ready or degraded."""

    status: Annotated[str, Meta(extra_json_schema={"enum": ["ready", "degraded"]})]
    version: str
    parts: list[PartHealth]


class VersionInfo(Struct, frozen=True):
    """The response of /version."""

    name: Annotated[str, Meta(extra_json_schema={"enum": ["jobwire"]})]
    version: str


class Setting(Struct, frozen=True):
    """One setting."""

    name: str
    value: Annotated[Any, Meta(description="secrets are masked")]
    origin: Annotated[str, Meta(description="where the value comes from; `default` if not set")]


class SettingList(Struct, frozen=True):
    """All settings of this gateway."""

    settings: list[Setting]


class BackendFinding(Struct, frozen=True):
    """One checked property of a backend."""

    check: str
    verdict: Annotated[str, Meta(extra_json_schema={"enum": list(VERDICTS)})]
    found: str
    why: str
    fix: str


class BackendFindings(Struct, frozen=True):
    """What was found; `checked_ts` is when."""

    checked_ts: int
    findings: list[BackendFinding]


class Me(Struct, frozen=True):
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

LIVEZ: Final = Operation(
    "GET",
    "/livez",
    "public",
    "Is the process alive?",
    tag="health",
    answer=Alive,
    example={"status": "alive"},
)
READYZ: Final = Operation(
    "GET",
    "/readyz",
    "public",
    "Is every part ready? If not, what to do",
    tag="health",
    description="A program that is degraded still serves.",
    answer=Ready,
    example={
        "status": "ready",
        "version": "0.1.0",
        "parts": [{"name": "valkey", "state": "ready", "latency_ms": 0.4}],
    },
    problems=(NOT_READY,),
)
VERSION: Final = Operation(
    "GET",
    "/version",
    "public",
    "Which program and version is this?",
    tag="health",
    answer=VersionInfo,
    example={"name": "jobwire", "version": "0.1.0"},
)
METRICS: Final = Operation(
    "GET",
    "/metrics",
    "admin",
    "All metrics, as Prometheus text",
    tag="health",
    description="They count the jobs of all tenants.",
    answer=str,
    media_type="text/plain",
    example="jobwire_streams_open 3.0\n",
)
OPENAPI: Final = Operation(
    "GET", "/openapi.json", "public", "This document", tag="health", answer=dict[str, Any]
)
DOCS: Final = Operation("GET", "/docs", "public", "The API as a page", tag="page", hidden=True)
SETTINGS: Final = Operation(
    "GET",
    "/v1/settings",
    "admin",
    "Every setting, its value and its source",
    tag="fleet",
    description="As `jobwire config`: secrets are masked. API keys and queues of other tenants are "
    "shown to keys of all tenants only.",
    answer=SettingList,
    example={"settings": [{"name": "worker.slots", "value": 8, "origin": "JOBWIRE_WORKER_SLOTS"}]},
)
BACKENDS: Final = Operation(
    "GET",
    "/v1/backends",
    "admin",
    "What the servers report about themselves, and what to do",
    tag="fleet",
    description="As `jobwire doctor`, for what the gateway can read over its own connection.",
    answer=BackendFindings,
    example={
        "checked_ts": 1767225600000,
        "findings": [
            {
                "check": "valkey eviction",
                "verdict": "ok",
                "found": "never evicts",
                "why": "",
                "fix": "",
            }
        ],
    },
)
ME: Final = Operation(
    "GET",
    "/v1/me",
    "read",
    "The caller's key, tenant and scopes",
    tag="health",
    answer=Me,
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
