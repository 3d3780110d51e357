"""The systems of jobwire: one declaration each, found by the name of its module.

A system is a wire with all that belongs to it in the programs: routes in the gateway, queues in the
worker, processes under `jobwire up`, schema, lifecycle rules, doctor checks. The programs read the
declarations and know no system by name. A declaration is imported only when its system is chosen,
and imports its parts only when they are built, so a program loads nothing of the others.

To add a system: a folder whose `system.py` has a `SYSTEM`, and a line in `SYSTEMS`. A system
outside of this package is chosen as `module:attribute`. See docs/extending.md.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from jobwire.log import component
from jobwire.private_files import Untrusted, check_trusted
from jobwire.settings import SettingsError
from jobwire.text import did_you_mean

if TYPE_CHECKING:
    from jobwire.doctor import Finding
    from jobwire.gateway.feature import Feature
    from jobwire.gateway.sse_connections import SseConnections
    from jobwire.job.engine import Engine
    from jobwire.job.messages import ServedQueue
    from jobwire.objects.lifecycle import Rule
    from jobwire.settings import Loaded, Settings
    from jobwire.systems.backends import SystemBackends
    from jobwire.valkey import Config
    from jobwire.worker import App

_log = component("systems")

# name → the module that has its declaration as `SYSTEM`, in the order of their start
SYSTEMS: Final[Mapping[str, str]] = {
    "jobs": "jobwire.systems.jobs.system",
    "queues": "jobwire.systems.queues.system",
    "images": "jobwire.systems.images.system",
    "predictions": "jobwire.systems.predictions.system",
}


class Backend(StrEnum):
    """What a system needs; only backends that a chosen system needs are started and connected."""

    VALKEY = "valkey"
    BUCKET = "bucket"
    SQL = "sql"


SchemaDocument = Mapping[str, Any]
"""A JSON Schema with `$defs`; a definition that has an `$id` refers to no other one."""
Background = Callable[[], Coroutine[Any, Any, None]]
"""Work that runs beside the jobs of a worker, until the last job has ended."""


class KeyPrefix(NamedTuple):
    """What all keys of a system begin with."""

    setting: str
    """The setting that says so."""
    value: str
    tagged: str
    """One with a hash tag, to suggest: on a Cluster all keys of a system share a slot (G-7)."""
    own_url: str = ""
    """The server of these keys, if it is not that of `valkey`."""


@dataclass(frozen=True, slots=True)
class GatewayContext:
    """What a system's feature is built from."""

    settings: Settings
    backends: SystemBackends
    streams: SseConnections


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What a system's engines are built from."""

    settings: Settings
    backends: SystemBackends
    app: App
    replaces_pid: int | None = None
    """A worker's process on this machine that is dead; its jobs are free."""
    known_queues: set[str] = field(default_factory=set[str])
    """The queues that were asked for with `reads`, of all systems."""

    def reads(self, queue: str, under: str = "") -> bool:
        """Whether the worker is to read this queue of its App; one that belongs `under` another is
        read with it."""
        self.known_queues.add(queue)
        worker, names = self.settings.worker, {queue, under}
        return (not worker.queues or bool(names & {*worker.queues})) and not (
            names & {*worker.exclude_queues}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """What a worker serves for a system: its queues, and work beside them. The engines' maintenance
    is run by the worker."""

    engines: Sequence[Engine]
    served: Sequence[ServedQueue] = ()
    """Each queue of the engines, and the tasks whose jobs wait in it."""
    background: Sequence[Background] = ()
    describe_process: Callable[[Sequence[ServedQueue]], None] | None = None
    """Is given the queues of all systems, for a registration of the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One system. All callables import what they need when they are called: see `lazy`."""

    name: str
    needs: frozenset[Backend] = field(default_factory=frozenset[Backend])
    uses: frozenset[Backend] = field(default_factory=frozenset[Backend])
    """What a part of it uses where it is configured; `jobwire up` starts it, other programs do
    without, and it opens it itself."""
    feature: Callable[[GatewayContext], contextlib.AbstractAsyncContextManager[Feature]]
    """Its part of the gateway, open while the gateway serves."""
    tasks: (
        Callable[[App, Settings], contextlib.AbstractContextManager[Sequence[Background]]] | None
    ) = None
    """Adds its own handlers to the App of a worker; open until the worker has ended."""
    engines: Callable[[WorkerContext], WorkerParts] | None = None
    """What a worker serves; without it the system needs no worker."""
    valkey_config: Callable[[Settings], Sequence[str]] = lambda _: ()
    """Lines that the configuration of the embedded Valkey needs for its settings."""
    key_prefix: Callable[[Settings], KeyPrefix] | None = None
    """What its keys begin with; without it, it cannot run on a Cluster."""
    bucket: Callable[[Settings], str] = lambda _: ""
    """The name of its bucket; empty: `objects.bucket`."""
    lifecycle_rules: Callable[[], Sequence[Rule]] = lambda: ()
    """The rules that expire old objects of its bucket."""
    shards: Callable[[Settings], Mapping[int, Config]] = lambda _: {}
    """The servers of its shards by number, where its keys are spread over several."""
    doctor_checks: Callable[[Loaded], AsyncIterator[Finding]] | None = None
    """Checks of its own, beside those of its backends."""
    schema: Callable[[], SchemaDocument] | None = None
    """JSON Schema of its messages: one document with a definition for each kind."""
    example: str = ""
    """A command to try first, for the banner of `jobwire up`."""


def lazy(target: str) -> Callable[..., Any]:
    """The function `module:name`, imported when it is called."""
    module_name, _, name = target.partition(":")

    def call(*arguments: Any, **options: Any) -> Any:
        return getattr(importlib.import_module(module_name), name)(*arguments, **options)

    return call


def import_from_here(module_name: str) -> ModuleType:
    """Import a module, also from the working directory, if no other user may have written there
    (O-16): every later import would look there first."""
    here = Path.cwd()
    if {str(here), ""}.isdisjoint(sys.path):
        try:
            _check_modules(here, module_name)
        except Untrusted as error:
            trusted = "if you trust it, name the folder in PYTHONPATH"
            reason = f"{error.filename} is not used: {error.strerror}; {trusted}"
            raise ImportError(reason) from None
        sys.path.insert(0, str(here))
    return importlib.import_module(module_name)


def _check_modules(folder: Path, module_name: str) -> None:
    """Raise Untrusted if another user may have written the folder or the module in it."""
    first = module_name.partition(".")[0]
    check_trusted(folder)
    for each in (folder / first, folder / f"{first}.py"):
        if each.exists():
            check_trusted(each)


def resolve(name: str) -> System:
    """Import the declaration of one system; SettingsError if there is none."""
    module_name, _, attribute = name.partition(":")
    if attribute:
        try:
            found: object = getattr(import_from_here(module_name), attribute, None)
        except ImportError as error:
            raise SettingsError([f"systems: {name} cannot be imported: {error}"]) from error
    elif name in SYSTEMS:
        found = importlib.import_module(SYSTEMS[name]).SYSTEM
    else:
        hint = did_you_mean(name, SYSTEMS) or f"; known: {', '.join(SYSTEMS)}"
        raise SettingsError([f"systems: there is no system named {name!r}{hint}"])
    if not isinstance(found, System):
        raise SettingsError([f"systems: {name} is not a System"])
    return found


def all_systems() -> tuple[System, ...]:
    """Every system of this package, chosen or not: for what describes them, like `schema`."""
    return tuple(map(resolve, SYSTEMS))


def chosen(loaded: Loaded, *, has_bucket: bool, worker: bool = False) -> tuple[System, ...]:
    """Return the systems of the setting `systems`, else all whose backends are configured; for a
    worker only those that have engines.

    SettingsError if a name is unknown, or if a chosen system needs a bucket and there is none.
    """
    explicit = loaded.is_set("systems")
    names = list(dict.fromkeys(loaded.settings.systems)) if explicit else list(SYSTEMS)
    systems = [system for system in map(resolve, names) if system.engines is not None or not worker]
    if not systems:
        what = "the chosen systems have no jobs for a worker" if names else "names no system"
        raise SettingsError([f"systems: {what}; known: {', '.join(SYSTEMS)}"])
    without = [each for each in systems if Backend.BUCKET in each.needs and not has_bucket]
    if explicit and without:
        raise SettingsError(
            [f"objects.endpoint: is required by {each.name}, it needs a bucket" for each in without]
        )
    for each in without:
        _log.debug(
            "not served system=%(system)s; it needs a bucket: set objects.endpoint",
            {"system": each.name},
        )
    return tuple(system for system in systems if system not in without)


def needs(systems: Sequence[System]) -> frozenset[Backend]:
    """Return the backends that any of the systems needs."""
    return frozenset(backend for system in systems for backend in system.needs)


def started(systems: Sequence[System]) -> frozenset[Backend]:
    """Return the backends that `jobwire up` starts: those that any of the systems needs or uses."""
    return needs(systems) | frozenset(backend for system in systems for backend in system.uses)


def buckets(
    systems: Sequence[System], settings: Settings, *, used: bool = False
) -> dict[str, list[Rule]]:
    """Return the buckets that the systems need, each with the lifecycle rules of its systems; with
    `used` also those that they use."""
    found: dict[str, list[Rule]] = {}
    for system in systems:
        if Backend.BUCKET in system.needs or (used and Backend.BUCKET in system.uses):
            name = bucket_name(system, settings)
            found.setdefault(name, []).extend(system.lifecycle_rules())
    return found


def bucket_name(system: System, settings: Settings) -> str:
    """Return the name of a system's bucket."""
    return system.bucket(settings) or settings.objects.bucket
