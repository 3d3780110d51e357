"""The server's address, credentials and timeouts, by field or from one URL.

Checked when built, so that a wrong value is reported with its name before any socket is opened.
Never shows a password.
"""

import ssl
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from jobwire.valkey.checks import check_duration
from jobwire.valkey.errors import ConfigError

_SCHEMES: Final = {
    "valkey": False,
    "redis": False,
    "valkeys": True,
    "rediss": True,
    "unix": False,
}
_DEFAULT_PORT: Final = 6379
_DEFAULT_POOL: Final = 10
_TIMEOUTS: Final = ("dial_timeout_s", "read_timeout_s", "write_timeout_s")
_IN_QUERY: Final = ("db", "pool_size", *_TIMEOUTS)
"""What may be in the query of a URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    address: str
    """`host:port`, `[v6]:port`, or the path of a unix socket (starts with `/`)."""
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    db: int = 0
    tls: bool = False
    tls_context: ssl.SSLContext | None = field(default=None, repr=False, compare=False)
    """For own certificates; the system's trust store if left out."""
    pool_size: int = _DEFAULT_POOL
    """Number of sockets that may block at the same time; 0 means the default."""
    dial_timeout_s: float = 5.0
    """Limit for connecting, and for a command that waits while there is no connection."""
    read_timeout_s: float = 3.0
    """Limit for a reply; counted after the block time of a blocking command."""
    write_timeout_s: float = 3.0
    """Limit for writes that the server does not read."""

    def __post_init__(self) -> None:
        if not self.address:
            raise ConfigError("address", "is empty; give host:port or the path of a unix socket")
        _ = self.endpoint
        if self.db < 0:
            raise ConfigError("db", f"must not be negative, is {self.db}")
        if self.pool_size < 0:
            raise ConfigError("pool_size", f"must not be negative, is {self.pool_size}")
        if self.pool_size == 0:
            object.__setattr__(self, "pool_size", _DEFAULT_POOL)
        for name in _TIMEOUTS:
            check_duration(name, getattr(self, name))

    @property
    def endpoint(self) -> tuple[str, int] | str:
        """(host, port), or the path of a unix socket."""
        if self.address.startswith("/"):
            return self.address
        host, colon, port = self.address.rpartition(":")
        if not colon or (":" in host and not host.startswith("[")):
            host, port = self.address, str(_DEFAULT_PORT)
        host = host.strip("[]")
        if not host:
            raise ConfigError("address", f"has no host in {self.address!r}")
        if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigError("address", f"has a bad port in {self.address!r}; it must be 1-65535")
        return host, int(port)

    @classmethod
    def from_url(
        cls, url: str, **overrides: float | int | bool | ssl.SSLContext | None
    ) -> "Config":
        """Read a URL: `valkey://user:password@host:6379/0`.

        `valkeys://` and `rediss://` mean TLS; `unix:///path?db=0` is a unix socket. The timeouts
        and `pool_size` may be in the query: `?read_timeout_s=10`.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            # Without the cause: its text may contain the password.
            raise ConfigError("url", _url_problem(error)) from None
        if parts.scheme not in _SCHEMES:
            raise ConfigError(
                "url", f"starts with none of {', '.join(f'{s}://' for s in _SCHEMES)}"
            )
        values: dict[str, object] = {
            "address": _address(parts, port),
            "username": unquote(parts.username) if parts.username else None,
            "password": unquote(parts.password) if parts.password else None,
            "tls": _SCHEMES[parts.scheme],
            **_query(parts),
            **overrides,
        }
        if parts.scheme != "unix" and parts.path.strip("/"):
            values["db"] = _number("db", parts.path.strip("/"), int)
        return cls(**values)  # pyright: ignore[reportArgumentType]  # checked field by field above


def _url_problem(error: ValueError) -> str:
    return (
        "has a bad port; it must be 1-65535" if "ort" in str(error) else "cannot be read as a URL"
    )


def _address(parts: SplitResult, port: int | None) -> str:
    if parts.scheme == "unix":
        if not parts.path.startswith("/"):
            raise ConfigError("url", "of a unix socket needs an absolute path: unix:///run/x.sock")
        return unquote(parts.path)
    if not parts.hostname:
        raise ConfigError("url", "has no host")
    if port == 0:
        raise ConfigError("url", "has a bad port; it must be 1-65535")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{port or _DEFAULT_PORT}"


def _query(parts: SplitResult) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, texts in parse_qs(parts.query, keep_blank_values=True).items():
        if name not in _IN_QUERY:
            raise ConfigError(
                "url", f"has an unknown parameter {name!r}; known: {sorted(_IN_QUERY)}"
            )
        values[name] = _number(name, texts[-1], float if name.endswith("_s") else int)
    return values


def _number(name: str, text: str, kind: type[int] | type[float]) -> int | float:
    try:
        return kind(text)
    except ValueError:
        raise ConfigError(name, f"is not a number: {text!r}") from None
