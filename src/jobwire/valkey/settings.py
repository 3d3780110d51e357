"""The section `valkey` of the settings; every key is also read from `VALKEY_<KEY>`."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import quote, urlencode

from jobwire.valkey.config import Config
from jobwire.valkey.errors import ConfigError

_DEFAULT_ADDRESS: Final = "127.0.0.1:6379"


@dataclass(frozen=True, slots=True)
class ValkeySettings:
    """How to reach the server: an address with its details, or all of it as one URL."""

    ENV_PREFIX: ClassVar = "VALKEY_"
    ONE_OF: ClassVar = ("url", "address")

    url: str = field(default="", repr=False)
    """The server in one line: valkey://user:password@host:6379/0 (valkeys:// for TLS), or
    valkey+sentinel://user:password@a,b,c/name with the sentinels a, b, c, or
    valkey+cluster://user:password@a,b with some nodes of a Cluster."""
    address: str = _DEFAULT_ADDRESS
    """Host:port, instead of `url`."""
    username: str = ""
    """User name, unless the URL has one."""
    password: str = field(default="", repr=False)
    """Password, unless the URL has one."""
    password_file: str = ""
    """A file that holds the password, instead of `password`."""
    sentinel_username: str = ""
    """User name for the sentinels, if they require a login of their own."""
    sentinel_password: str = field(default="", repr=False)
    """Password for the sentinels."""
    db: int = 0
    """Number of the database (a URL has its own)."""
    tls: bool = False
    """Use TLS (in a URL: `valkeys://`)."""
    pool_size: int = 10
    """Number of sockets that may block at the same time; 0 means 10."""
    dial_timeout: timedelta = timedelta(seconds=5)
    """Limit for connecting."""
    failover_timeout: timedelta = timedelta(seconds=10)
    """Limit for commands that wait while there is no connection, as during a failover."""
    read_timeout: timedelta = timedelta(seconds=3)
    """Limit for a reply, counted after the block time of a blocking command."""
    write_timeout: timedelta = timedelta(seconds=3)
    """Limit for writes that the server does not read."""

    def config(self) -> Config:
        """The settings as `Config`; ConfigError if a value is wrong."""
        if self.url:
            config = Config.from_url(self.url)
        else:
            config = Config(address=self.address, db=self.db, tls=self.tls)
        return replace(
            config,
            # The URL may be public and the password set separately.
            username=config.username or self.username or None,
            password=config.password or self.password or self._password_of_file() or None,
            sentinel_username=config.sentinel_username or self.sentinel_username or None,
            sentinel_password=config.sentinel_password or self.sentinel_password or None,
            pool_size=self.pool_size,
            dial_timeout_s=self.dial_timeout.total_seconds(),
            failover_timeout_s=self.failover_timeout.total_seconds(),
            read_timeout_s=self.read_timeout.total_seconds(),
            write_timeout_s=self.write_timeout.total_seconds(),
        )

    def _password_of_file(self) -> str:
        if not self.password_file:
            return ""
        try:
            password = Path(self.password_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            message = f"{self.password_file} cannot be read ({reason})"
            raise ConfigError("password_file", message) from None
        if not password:
            raise ConfigError("password_file", f"{self.password_file} is empty")
        return password

    def full_url(self) -> str:
        """The URL with the password: only for files that only their owner can read."""
        config = self.config()
        login = ":".join(quote(part or "", safe="") for part in (config.username, config.password))
        user = f"{login}@" if config.password else ""
        if config.address.startswith("/"):
            return f"unix://{user}{quote(config.address)}?db={config.db}"
        scheme = "valkeys" if config.tls else "valkey"
        if config.sentinels:
            login = {
                name: value
                for name in ("sentinel_username", "sentinel_password")
                if (value := getattr(config, name))
            }
            query = f"?{urlencode(login)}" if login else ""
            path = f"{quote(config.primary, safe='')}/{config.db}"
            return f"{scheme}+sentinel://{user}{config.address}/{path}{query}"
        kind = "+cluster" if config.nodes else ""
        return f"{scheme}{kind}://{user}{config.address}/{config.db}"

    def check(self) -> Iterator[tuple[str, str]]:
        """Yield each error: the field, and what is wrong with it."""
        try:
            self.config()
        except ConfigError as error:
            name = error.field.removesuffix("_s")
            if name in ("db", "address") and self.url:
                name = "url"
            yield name, str(error).partition(": ")[2]
