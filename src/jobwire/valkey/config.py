"""The server's address, credentials and timeouts, by field or from one URL.

Checked when built, so that a wrong value is reported with its name before any socket is opened.
Never shows a password.
"""

import re
import ssl
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from jobwire.valkey.checks import check_duration
from jobwire.valkey.cluster import Topology, hash_tag, slot_of, topology_of
from jobwire.valkey.errors import ConfigError

_SCHEMES: Final = {
    "valkey": False,
    "redis": False,
    "valkeys": True,
    "rediss": True,
    "unix": False,
}
_BASES: Final = ("valkey", "valkeys")
_SENTINEL: Final = "+sentinel"
"""What a scheme ends with if its hosts are sentinels."""
_CLUSTER: Final = "+cluster"
"""What a scheme ends with if its hosts are nodes of a Cluster."""
_DEFAULT_PORT: Final = 6379
_SENTINEL_PORT: Final = 26379
_DEFAULT_POOL: Final = 10
_TIMEOUTS: Final = ("dial_timeout_s", "failover_timeout_s", "read_timeout_s", "write_timeout_s")
_LOGIN_OF_SENTINELS: Final = ("sentinel_username", "sentinel_password")
_TEXTS: Final = (*_LOGIN_OF_SENTINELS, "tag")
_IN_QUERY: Final = ("db", "pool_size", *_TIMEOUTS, *_TEXTS)
"""What may be in the query of a URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    address: str = ""
    """`host:port`, `[v6]:port`, or the path of a unix socket (starts with `/`). With `sentinels` or
    `nodes`, which know the address, only a name for messages."""
    sentinels: tuple[str, ...] = ()
    """The addresses of the sentinels, `host:port` each; every dial asks them for the primary."""
    primary: str = ""
    """The primary's name in the configuration of the sentinels. A server that is not a primary is
    refused."""
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    """For sentinels that require a login; `username` and `password` are for the servers."""
    nodes: tuple[str, ...] = ()
    """Some nodes of a Cluster, `host:port` each; any of them knows the others."""
    tag: str = ""
    """The hash tag of all keys; only for a Cluster, which places keys by it."""
    topology: Topology | None = field(default=None, repr=False, compare=False)
    """The map of the Cluster, one for all configurations of a process."""
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    db: int = 0
    tls: bool = False
    tls_context: ssl.SSLContext | None = field(default=None, repr=False, compare=False)
    """For own certificates; the system's trust store if left out."""
    pool_size: int = _DEFAULT_POOL
    """Number of sockets that may block at the same time; 0 means the default."""
    dial_timeout_s: float = 5.0
    """Limit for connecting."""
    failover_timeout_s: float = 10.0
    """Limit for a command that waits while there is no connection, as during a failover."""
    read_timeout_s: float = 3.0
    """Limit for a reply; counted after the block time of a blocking command."""
    write_timeout_s: float = 3.0
    """Limit for writes that the server does not read."""
    max_reply_bytes: float = inf
    """Limit for one reply, for a server that is not trusted."""

    def __post_init__(self) -> None:
        if self.sentinels:
            for address in self.sentinels:
                endpoint_of(address, _SENTINEL_PORT)
            if not self.primary:
                raise ConfigError("primary", "is empty; give the name that the sentinels know")
            if not self.address:
                object.__setattr__(self, "address", ",".join(self.sentinels))
        elif self.nodes:
            for address in self.nodes:
                endpoint_of(address, _DEFAULT_PORT)
            if not self.address:
                object.__setattr__(self, "address", ",".join(self.nodes))
            if self.topology is None:
                login = (self.username, self.password, self.tls)
                object.__setattr__(self, "topology", topology_of(self.nodes, *login))
        elif not self.address:
            raise ConfigError("address", "is empty; give host:port or the path of a unix socket")
        else:
            _ = self.endpoint
        if self.db < 0:
            raise ConfigError("db", f"must not be negative, is {self.db}")
        if self.pool_size <= 0:
            object.__setattr__(self, "pool_size", _DEFAULT_POOL)
        for name in _TIMEOUTS:
            check_duration(name, getattr(self, name))

    @property
    def endpoint(self) -> tuple[str, int] | str:
        """(host, port), or the path of a unix socket."""
        if self.address.startswith("/"):
            return self.address
        return endpoint_of(self.address, _DEFAULT_PORT)

    def of_sentinel(self, address: str) -> "Config":
        """How to reach one of the sentinels."""
        host, port = endpoint_of(address, _SENTINEL_PORT)
        return replace(
            self,
            address=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            sentinels=(),
            primary="",
            username=self.sentinel_username,
            password=self.sentinel_password,
            db=0,
        )

    @property
    def slot(self) -> int | None:
        """The slot of the hash tag; None without a Cluster or a tag."""
        return slot_of(self.tag) if self.nodes and self.tag else None

    def for_keys(self, prefix: str) -> "Config":
        """How to reach the keys that begin with a prefix: on a Cluster, the node of its hash tag.
        ConfigError if it has none; without a Cluster the same configuration."""
        if not self.nodes:
            return self
        tag = hash_tag(prefix)
        if not tag:
            raise ConfigError(
                "tag", f"a Cluster needs a hash tag in every name; {prefix!r} has none"
            )
        return replace(self, tag=tag)

    def of_node(self, address: str) -> "Config":
        """How to reach one node of the Cluster."""
        return replace(self, address=address, nodes=(), tag="", topology=None)

    def of_primary(self, address: str) -> "Config":
        """How to reach the server that the sentinels name."""
        return replace(self, address=address, sentinels=())

    @classmethod
    def from_url(
        cls, url: str, **overrides: float | int | bool | ssl.SSLContext | None
    ) -> "Config":
        """Read a URL: `valkey://user:password@host:6379/0`.

        `valkeys://` and `rediss://` mean TLS; `unix:///path?db=0` is a unix socket;
        `valkey+sentinel://user:password@a,b,c/name/0` is the primary `name` of the sentinels a, b
        and c; `valkey+cluster://user:password@a,b/?tag=jobs` are the keys with the hash tag `jobs`
        of the Cluster that a and b belong to. The timeouts and `pool_size` may be in the query:
        `?read_timeout_s=10`.
        """
        by_sentinels = url.partition("://")[0].endswith(_SENTINEL)
        default_port = _SENTINEL_PORT if by_sentinels else _DEFAULT_PORT
        url, further = _first_host(url, default_port)
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            # Without the cause: its text may contain the password.
            raise ConfigError("url", _url_problem(error)) from None
        scheme = parts.scheme.removesuffix(_SENTINEL).removesuffix(_CLUSTER)
        in_cluster = parts.scheme.endswith(_CLUSTER)
        if scheme not in _SCHEMES or (scheme != parts.scheme and scheme == "unix"):
            known = [*_SCHEMES, *(f"{s}{kind}" for kind in (_SENTINEL, _CLUSTER) for s in _BASES)]
            raise ConfigError("url", f"starts with none of {', '.join(f'{s}://' for s in known)}")
        if further and not by_sentinels and not in_cluster:
            message = (
                f"has several hosts; use {scheme}{_SENTINEL}:// for sentinels,"
                f" {scheme}{_CLUSTER}:// for the nodes of a Cluster"
            )
            raise ConfigError("url", message)
        values: dict[str, object] = {
            "username": unquote(parts.username) if parts.username else None,
            "password": unquote(parts.password) if parts.password else None,
            "tls": _SCHEMES[scheme],
            **_query(parts),
            **overrides,
        }
        path = "" if scheme == "unix" else parts.path.strip("/")
        if by_sentinels:
            values["sentinels"] = (_address(parts, port, _SENTINEL_PORT), *further)
            primary, _, path = path.partition("/")
            if not primary:
                raise ConfigError("url", "has no name of a primary: valkey+sentinel://a,b,c/name")
            values["primary"] = unquote(primary)
        elif in_cluster:
            values["nodes"] = (_address(parts, port, _DEFAULT_PORT), *further)
        else:
            values["address"] = _address(parts, port, _DEFAULT_PORT)
        if path:
            if not path.isascii() or not path.isdigit():
                # With an unescaped `/` in the password, its rest is here.
                shown = "" if "@" in path else f" {path!r}"
                raise ConfigError("db", f"has a bad database{shown}; it must be a number")
            values["db"] = int(path)
        return cls(**values)  # pyright: ignore[reportArgumentType]  # checked field by field above


def endpoint_of(address: str, default_port: int) -> tuple[str, int]:
    """(host, port) of an address."""
    host, colon, port = address.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        host, port = address, str(default_port)
    host = host.strip("[]")
    if not host:
        raise ConfigError("address", f"has no host in {address!r}")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError("address", f"has a bad port in {address!r}; it must be 1-65535")
    return host, int(port)


def _first_host(url: str, default_port: int) -> tuple[str, list[str]]:
    """The URL with the first of its hosts, and the addresses of the further ones."""
    head, slashes, rest = url.partition("://")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    login, at, hosts = authority.rpartition("@")
    first, *further = hosts.split(",")
    if not further:
        return url, []
    addresses: list[str] = []
    for host in further:
        try:
            parts = urlsplit(f"//{host}")
            addresses.append(_address(parts, parts.port, default_port))
        except ValueError as error:
            raise ConfigError("url", _url_problem(error)) from None
    return f"{head}{slashes}{login}{at}{first}{rest[len(authority) :]}", addresses


def _url_problem(error: ValueError) -> str:
    return (
        "has a bad port; it must be 1-65535" if "ort" in str(error) else "cannot be read as a URL"
    )


def _address(parts: SplitResult, port: int | None, default_port: int) -> str:
    if parts.scheme == "unix":
        if not parts.path.startswith("/"):
            raise ConfigError("url", "of a unix socket needs an absolute path: unix:///run/x.sock")
        return unquote(parts.path)
    if not parts.hostname:
        raise ConfigError("url", "has no host")
    if port == 0:
        raise ConfigError("url", "has a bad port; it must be 1-65535")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{port or default_port}"


def _query(parts: SplitResult) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, texts in parse_qs(parts.query, keep_blank_values=True).items():
        if name not in _IN_QUERY:
            raise ConfigError(
                "url", f"has an unknown parameter {name!r}; known: {sorted(_IN_QUERY)}"
            )
        if name in _TEXTS:
            values[name] = texts[-1]
        else:
            values[name] = _number(name, texts[-1], float if name.endswith("_s") else int)
    return values


def _number(name: str, text: str, kind: type[int] | type[float]) -> int | float:
    try:
        return kind(text)
    except ValueError:
        raise ConfigError(name, f"is not a number: {text!r}") from None
