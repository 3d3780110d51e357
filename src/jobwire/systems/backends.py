"""The backends: Valkey and the buckets, opened by the needs of the chosen systems.

A program that cannot connect at its start retries for START_TIMEOUT_S; once started it survives any
outage. Nothing of a backend that no system needs is imported.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from jobwire import endpoints
from jobwire.job.errors import BackendUnavailable
from jobwire.log import component
from jobwire.objects import BucketConfig, ObjectsError
from jobwire.settings import SettingsError
from jobwire.systems.system import (
    SYSTEMS,
    Backend,
    System,
    all_systems,
    bucket_name,
    buckets,
    needs,
    resolve,
)

if TYPE_CHECKING:
    from jobwire.objects import Bucket
    from jobwire.objects.lifecycle import Rule
    from jobwire.settings import Loaded, Settings
    from jobwire.valkey import Config, Connection

START_TIMEOUT_S: Final = 30.0
_SHARD_TIMEOUT_S: Final = 2.0
"""How long a start waits for a shard other than the first: the others can do without it."""
_START: Final = "start everything here: jobwire up"
_DATABASE_FILE: Final = "jobwire.sqlite3"
_log = component("backends")


class NotDeclared(Exception):
    """A system uses a backend that is not among its needs."""

    def __init__(self, system: str, backend: Backend) -> None:
        super().__init__(f"the system {system} has no {backend}: add {backend!r} to its needs")


@dataclass(frozen=True, slots=True)
class SystemBackends:
    """The backends of one system; NotDeclared for one that it did not declare."""

    _system: System
    _opened: Backends

    @property
    def valkey(self) -> Connection:
        """The connection of this process; on a Cluster that to the system's keys."""
        self._check(Backend.VALKEY)
        assert self._opened.valkey is not None
        return self._opened.by_system.get(self._system.name, self._opened.valkey)

    @property
    def shards(self) -> Mapping[int, Connection]:
        """The connection of each shard; empty without shards. Shards of one server share one."""
        self._check(Backend.VALKEY)
        return self._opened.shards.get(self._system.name, {})

    @property
    def bucket(self) -> Bucket:
        """The system's bucket; its conditional writes are verified."""
        self._check(Backend.BUCKET)
        return self._opened.buckets[bucket_name(self._system, self._opened.settings)]

    @property
    def database_url(self) -> str:
        """The URL of the SQL database."""
        self._check(Backend.SQL)
        return database_url(self._opened.settings)

    def _check(self, backend: Backend) -> None:
        if backend not in self._system.needs:
            raise NotDeclared(self._system.name, backend)


@dataclass(frozen=True, slots=True)
class Backends:
    """What one process has opened."""

    settings: Settings
    valkey: Connection | None
    """The connection; on a Cluster that of the first system."""
    buckets: Mapping[str, Bucket]
    shards: Mapping[str, Mapping[int, Connection]] = field(
        default_factory=dict[str, Mapping[int, "Connection"]]
    )
    """By the name of their system."""
    by_system: Mapping[str, Connection] = field(default_factory=dict[str, "Connection"])
    """On a Cluster, the connection to each system's slot."""

    def of(self, system: System) -> SystemBackends:
        """Return the backends of one system."""
        return SystemBackends(system, self)


@contextlib.asynccontextmanager
async def open_backends(
    settings: Settings, systems: Sequence[System], name: str
) -> AsyncGenerator[Backends]:
    """Open what the systems need; `name` is the name of the connections."""
    needed = needs(systems)
    async with contextlib.AsyncExitStack() as stack:
        valkey = None
        by_system: dict[str, Connection] = {}
        shards: dict[str, Mapping[int, Connection]] = {}
        if Backend.VALKEY in needed:
            from jobwire.valkey import Connection

            configs = _configs(settings, systems)
            servers = {system.name: system.shards(settings) for system in systems}
            blocking = Counter(config for own in servers.values() for config in own.values())
            connections: dict[Config, Connection] = {}

            async def connect(config: Config, timeout_s: float, *, or_later: bool = False) -> None:
                # A worker blocks on a socket of its own for each shard.
                pooled = replace(config, pool_size=config.pool_size + blocking[config])
                connections[config] = await stack.enter_async_context(
                    Connection.open(
                        pooled, name=name, connect_timeout_s=timeout_s, or_later=or_later
                    )
                )

            # Retries while the server does not respond; raises ValkeyError at the timeout.
            for config in dict.fromkeys(configs.values()):
                await connect(config, START_TIMEOUT_S)
            others = [config for config in blocking if config not in connections]
            connecting = (connect(each, _SHARD_TIMEOUT_S, or_later=True) for each in others)
            for failure in await asyncio.gather(*connecting, return_exceptions=True):
                if failure is not None:
                    raise failure
            _report_silent(connections)
            by_system = {system: connections[config] for system, config in configs.items()}
            valkey = next(iter(by_system.values()))
            for system, own in servers.items():
                shards[system] = {number: connections[config] for number, config in own.items()}
        opened: dict[str, Bucket] = {}
        for bucket in buckets(systems, settings):
            opened[bucket] = await _open_verified(replace(settings.objects.config(), bucket=bucket))
        yield Backends(settings, valkey, opened, shards, by_system)


def _report_silent(connections: Mapping[Config, Connection]) -> None:
    for config, connection in connections.items():
        if not connection.connected:
            _log.warning(
                "shard not reachable address=%(address)s tag=%(tag)s; starting without it",
                {"address": config.address, "tag": config.tag},
            )


@contextlib.asynccontextmanager
async def open_reachable(
    configs: Iterable[Config], name: str
) -> AsyncGenerator[dict[Config, Connection]]:
    """Connect to the servers that answer now, for an operator who looks at all of them."""
    from jobwire.valkey import Connection, ValkeyError

    async with contextlib.AsyncExitStack() as stack:
        opened: dict[Config, Connection] = {}
        for config in dict.fromkeys(configs):
            with contextlib.suppress(ValkeyError):
                opening = Connection.open(config, name=name)
                opened[config] = await stack.enter_async_context(opening)
        yield opened


def _configs(settings: Settings, systems: Sequence[System]) -> dict[str, Config]:
    """How each system reaches its keys; SettingsError if one has no hash tag on a Cluster."""
    config = settings.valkey.config()
    using = [system for system in systems if Backend.VALKEY in system.needs]
    if faults := untagged(config, settings, using):
        raise SettingsError(faults)
    return {system.name: _config(config, settings, system) for system in using}


def _config(config: Config, settings: Settings, system: System) -> Config:
    if shards := system.shards(settings):
        return shards[0]  # with servers of their own, none of the system's keys is on this one
    if system.key_prefix is None:
        return config
    prefix = system.key_prefix(settings)
    # With a server of its own, the system has no keys on this one.
    return config.for_keys(prefix.tagged if prefix.own_url else prefix.value)


def untagged(config: Config, settings: Settings, systems: Sequence[System]) -> list[str]:
    """The settings that have no hash tag although the server is a Cluster (G-7)."""
    from jobwire.valkey import Config, ConfigError
    from jobwire.valkey.cluster import hash_tag

    faults: list[str] = []
    for system in systems:
        if system.key_prefix is None:
            if config.nodes:
                faults.append(f"systems: {system.name} cannot run on a Cluster: no key prefix")
            continue
        prefix = system.key_prefix(settings)
        try:
            server = Config.from_url(prefix.own_url) if prefix.own_url else config
        except ConfigError:
            continue  # the system reports its URL
        if server.nodes and not hash_tag(prefix.value):
            faults.append(
                f"{prefix.setting}: needs a hash tag on a Cluster; set it to {prefix.tagged!r}"
            )
    return faults


async def _open_verified(config: BucketConfig) -> Bucket:
    """Open the bucket and verify its conditional writes (P-11); retry while it is unreachable."""
    from jobwire.objects import Bucket  # late: an extra that may be missing
    from jobwire.objects.probe import probe

    bucket = Bucket(config)
    # Without concurrent writers, which take seconds on some stores (see `jobwire doctor`).
    await retry_start("bucket", lambda: probe(bucket, racers=0))
    return bucket


async def retry_start(backend: str, connect: Callable[[], Awaitable[object]]) -> None:
    """Repeat `connect` for START_TIMEOUT_S while its error is retryable."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            await connect()
            return
        except (ObjectsError, BackendUnavailable) as error:
            if not error.retryable or time.monotonic() > deadline_s:
                raise
            reason = error.detail if isinstance(error, BackendUnavailable) else error
            _log.warning(
                "backend not usable backend=%(backend)s error=%(error)s; will retry",
                {"backend": backend, "error": reason},
            )
            await asyncio.sleep(1.0)


def database_url(settings: Settings) -> str:
    """Return the URL of the SQL database: `images.database_url`, else SQLite in the data dir."""
    return settings.images.database_url or f"sqlite:///{database_file(settings)}"


def database_file(settings: Settings) -> Path:
    """Return the file of the SQLite database that is used without `images.database_url`."""
    return settings.data_dir / _DATABASE_FILE


class KnownValkey(NamedTuple):
    """A Valkey server, and the fix if it is not reachable."""

    config: Config
    fix: str


def known_valkey(loaded: Loaded) -> KnownValkey | None:
    """Return the server of the settings, else that of the endpoints file, else None."""
    from jobwire.valkey import Config

    settings = loaded.settings
    if loaded.is_set("valkey.url") or loaded.is_set("valkey.address"):
        return KnownValkey(settings.valkey.config(), "start it, or correct valkey.url")
    running = endpoints.read(settings.data_dir)
    if running is None or running.valkey is None:
        return None
    return KnownValkey(Config.from_url(running.valkey), _START)


def known_servers(loaded: Loaded, systems: Sequence[System]) -> list[KnownValkey]:
    """Return that server, and the servers of shards that have their own (G-1), each once."""
    found: dict[str, KnownValkey] = {}
    if (known := known_valkey(loaded)) is not None:
        found[known.config.address] = known
    # Other shards are on the server of `valkey.url`, and differ by their keys only.
    for system in systems if loaded.settings.jobs.shards.urls else ():
        for number, config in system.shards(loaded.settings).items():
            fix = f"start it, or correct the URL of shard {number}"
            found.setdefault(config.address, KnownValkey(config, fix))
    return list(found.values())


class KnownBucket(NamedTuple):
    """A bucket, the rules of its systems, and the fix if it is not reachable."""

    config: BucketConfig
    rules: Sequence[Rule]
    fix: str


def known_buckets(loaded: Loaded, systems: Sequence[System]) -> list[KnownBucket]:
    """Return the systems' buckets on the server of the settings, else on that of the endpoints
    file."""
    settings = loaded.settings
    if settings.objects.endpoint:
        config, fix = (
            settings.objects.config(),
            "start it, or correct objects.endpoint and its keys",
        )
    else:
        running = endpoints.read(settings.data_dir)
        if running is None or running.s3 is None:
            return []
        values = {name: getattr(running.s3, name) for name in running.s3.__struct_fields__}
        config, fix = BucketConfig(**values), _START
    default = settings.objects.bucket
    return [
        # The endpoints file has the name of the default bucket.
        KnownBucket(config if name == default else replace(config, bucket=name), rules, fix)
        for name, rules in buckets(systems, settings, used=True).items()
    ]


def examined_systems(loaded: Loaded) -> tuple[System, ...]:
    """Return the systems of this installation: those of the settings, else those of the running
    program, else all."""
    names = loaded.settings.systems
    if not names and (running := endpoints.read(loaded.settings.data_dir)) is not None:
        names = tuple(name for name in running.systems if name in SYSTEMS)
    return tuple(map(resolve, names)) if names else all_systems()
