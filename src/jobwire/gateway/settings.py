"""The section `gateway` of the settings: address, API keys, limits."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal

from jobwire.gateway.proxies import parsed_network
from jobwire.net import is_loopback

ScopeName = Literal["submit", "read", "signal", "admin"]
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_ORIGIN: Final = re.compile(
    r"https?://[a-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:]+\](:[0-9]{1,5})?"
)
ALL_TENANTS: Final = "*"
"""The tenant of a key that sees and cancels the jobs of all tenants; needs the scope `admin`."""
_SUBMIT_RATE: Final = 10_000.0


def most_proved(connections: int) -> int:
    """Of so many connections those whose requests may have proved their keys: three quarters, so
    that a quarter can always be closed for others."""
    return max(1, connections * 3 // 4)


@dataclass(frozen=True, slots=True)
class KeySettings:
    """One API key. Only its hash is stored; `jobwire key` creates both."""

    name: str
    hash: str
    scopes: tuple[ScopeName, ...]
    tenant: str = "default"

    def check(self) -> Iterator[tuple[str, str]]:
        """Yield each fault: field and problem."""
        if not _NAME.fullmatch(self.name):
            yield "name", "must be 1-64 letters, digits, dots, dashes or underscores"
        if self.tenant == ALL_TENANTS:
            if "admin" not in self.scopes:
                yield "tenant", "may be * only with the scope admin"
        elif not _NAME.fullmatch(self.tenant):
            yield "tenant", "must be 1-64 letters, digits, dots, dashes or underscores"
        if not _HASH.fullmatch(self.hash):
            yield "hash", "must be sha256: and 64 hex digits; `jobwire key` prints it"
        if not self.scopes:
            yield "scopes", "is empty; known: submit, read, signal, admin"


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Settings of the HTTP server."""

    host: str = "127.0.0.1"
    """Address to listen on; anything but loopback needs `keys`."""
    port: int = 8080
    """Port to listen on; 0 means any free port."""
    keys: tuple[KeySettings, ...] = ()
    """API keys: a list of name, hash, scopes and tenant (in the environment: as JSON)."""
    keys_file: str = ""
    """File with more API keys, which `jobwire keys` writes; a change holds within a second."""
    local_users: Literal["own", "any"] = "own"
    """Without `keys`: serve the user who started the gateway and root, or any user of this machine;
    macOS does not tell them apart."""
    token_secret: str = field(default="", repr=False)
    """Signs stream tokens; the same for all gateways, by default random per process."""
    token_ttl: timedelta = timedelta(minutes=5)
    """How long a stream token is valid."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call the upload routes, for example `https://app.example.com`."""
    read_only: bool = False
    """Serve only routes that read: nothing can be submitted, canceled, retried or changed."""
    rate_limit: float = 0.0
    """Requests per second for each key; 0 means no limit."""
    submit_rate: float = 0.0
    """Jobs per second that one key may submit, a batch counted by its jobs; 0 means 10,000 if there
    are keys of several tenants, else no limit."""
    max_body_bytes: int = 1 << 20
    """Largest body, for routes without a limit of their own."""
    max_memory_mb: int = 0
    """Memory that the gateway may use, in MiB, from which its budgets follow; 0: that of the
    machine, or of the control group (container, service) that it is in."""
    body_budget_mb: int = 0
    """Bodies of all requests in memory together, in MiB; a key may use a quarter of it, or one
    body. 0: a sixteenth of the memory, at most 256."""
    unread_budget_mb: int = 0
    """Large responses that clients have not read yet, all together, in MiB; beyond it the client
    that has been reading for the longest time is disconnected. 0: a sixteenth of the memory, at
    most 128."""
    max_header_bytes: int = 16 << 10
    """Request line and headers together."""
    max_headers: int = 64
    """Number of headers."""
    header_timeout: timedelta = timedelta(seconds=10)
    """Time until the headers of a request are complete."""
    body_timeout: timedelta = timedelta(seconds=10)
    """Window over which a body must arrive with at least 1 KiB per second."""
    keep_alive: timedelta = timedelta(seconds=75)
    """Time until an idle connection is closed after its last response."""
    max_connections: int = 50_000
    """Open connections; at most the system's limit of open files less 512, and one for each 128 KiB
    of the memory."""
    proxies: tuple[str, ...] = ()
    """HTTP proxies before this gateway, by address or network: their idle connections are kept, and
    a request without a proof counts for the last other address in `X-Forwarded-For`."""
    streams_per_key: int = 0
    """Open event streams of one key, at most three quarters of `max_connections`; 0: no limit of
    their own."""
    stream_buffer_bytes: int = 64 << 10
    """Buffer of one event stream; all together at most a sixteenth of the memory."""
    slow_client: timedelta = timedelta(seconds=30)
    """A client whose event buffer is full for this long is disconnected."""
    heartbeat: timedelta = timedelta(seconds=15)
    """Interval of heartbeat comments on an event stream."""
    drain: timedelta = timedelta(seconds=5)
    """Time for requests in flight at shutdown."""

    @property
    def has_keys(self) -> bool:
        """Whether callers need an API key; with an empty `keys_file` nobody has one."""
        return bool(self.keys or self.keys_file)

    @property
    def exposed_without_keys(self) -> bool:
        """Whether others can reach the server and there are no keys: then it may serve only routes
        that authenticate by themselves."""
        return not self.has_keys and not is_loopback(self.host)

    @property
    def serves_own_user_only(self) -> bool:
        """Whether requests of other users of this machine are refused."""
        return not self.has_keys and self.local_users == "own" and sys.platform == "linux"

    @property
    def several_tenants(self) -> bool:
        """Whether there are keys of more than one tenant, or may be soon, so that each is limited
        (J-57)."""
        return bool(self.keys_file) or len({key.tenant for key in self.keys} - {ALL_TENANTS}) > 1

    @property
    def effective_submit_rate(self) -> float:
        """Jobs per second and key; 0 means no limit."""
        return self.submit_rate or (_SUBMIT_RATE if self.several_tenants else 0.0)

    def key_faults(self) -> Iterator[tuple[str, str]]:
        """Yield each fault of the keys: place and problem."""
        for at, key in enumerate(self.keys):
            for name, problem in key.check():
                yield f"keys[{at}].{name}", problem
        yield from self._repeated_names()

    def _repeated_names(self) -> Iterator[tuple[str, str]]:
        names = [key.name for key in self.keys]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield "keys", f"two keys are named {name!r}"

    def check(self) -> Iterator[tuple[str, str]]:
        """Yield each fault: field and problem."""
        if not 0 <= self.port <= 65535:
            yield "port", f"{self.port} is not a port; it must be 0-65535"
        if self.exposed_without_keys:
            problem = (
                f"{self.host} can be reached by others and there are no API keys; create one with "
                "`jobwire key` and put it into gateway.keys, or listen on 127.0.0.1"
            )
            yield "host", problem
        yield from self._repeated_names()
        if self.token_secret and len(self.token_secret) < 32:
            yield "token_secret", "must have at least 32 characters"
        for origin in self.cors_origins:
            if not _ORIGIN.fullmatch(origin):
                yield (
                    "cors_origins",
                    f"{origin!r} must be like https://app.example.com, without a path",
                )
        for proxy in self.proxies:
            try:
                parsed_network(proxy)
            except ValueError as error:
                yield "proxies", f"{error}; it must be like 10.1.2.3 or 10.1.0.0/16"
        if not 0 <= self.streams_per_key <= most_proved(self.max_connections):
            yield "streams_per_key", "must be 0, or at most three quarters of max_connections"
        for name in (
            *("rate_limit", "submit_rate"),
            *("max_memory_mb", "body_budget_mb", "unread_budget_mb"),
        ):
            if getattr(self, name) < 0:
                yield name, "must not be negative"
        for name in (
            "max_body_bytes",
            "max_header_bytes",
            "max_headers",
            "max_connections",
            "stream_buffer_bytes",
        ):
            if getattr(self, name) < 1:
                yield name, "must be at least 1"
        for name in (
            "token_ttl",
            "header_timeout",
            "body_timeout",
            "keep_alive",
            "slow_client",
            "heartbeat",
        ):
            if not getattr(self, name):
                yield name, "must be longer than 0"
