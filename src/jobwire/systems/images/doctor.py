"""Checks of images for `jobwire doctor`: libraries, database, token keys, spool, results.

The libraries of the database and of the tokens take a second to load: only where there is something
to check with them.
"""

import shutil
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from typing import Final

from jobwire.doctor import Finding
from jobwire.handlers.photo import SetupError
from jobwire.handlers.photo.detectors import weights
from jobwire.settings import Loaded, Settings, SettingsError
from jobwire.systems.backends import database_file as configured_file
from jobwire.systems.backends import database_url as configured_database
from jobwire.systems.backends import known_valkey
from jobwire.systems.images.storage import image_status, spool_folder
from jobwire.systems.images.system import missing_libraries
from jobwire.valkey import Config, Connection, ValkeyError

_FREE_MB: Final = 512


async def examine(loaded: Loaded) -> AsyncIterator[Finding]:
    """All checks; nothing is changed."""
    settings = loaded.settings
    if missing := missing_libraries():
        yield Finding(
            "images",
            "note",
            f"{', '.join(missing)} is not installed",
            "images are not served",
            "pip install 'jobwire[images]'",
        )
        return
    yield await _database(settings)
    for finding in (_formats(), *_detection(settings), *_keys(settings), *_spool(settings)):
        yield finding
    if (known := known_valkey(loaded)) is not None:
        async for finding in _results(settings, known.config):
            yield finding


async def _database(settings: Settings) -> Finding:
    if not settings.images.database_url and not configured_file(settings).exists():
        return Finding("image records", "ok", "none yet; SQLite, made by the first start")
    from jobwire.systems.images.database import (
        BadDatabaseUrl,
        RecordsUnavailable,
        database_url,
        open_engine,
    )
    from jobwire.systems.images.records import ImageRecords

    try:
        url = database_url(configured_database(settings))
    except BadDatabaseUrl as error:
        return Finding("image records", "fault", f"images.database_url {error}")
    engine = open_engine(url)
    try:
        await ImageRecords(engine).ping()
    except RecordsUnavailable as error:
        return Finding(
            "image records",
            "unreachable",
            f"{url.get_backend_name()}: {error.detail}",
            "results wait until the database answers again",
            "start it, or correct images.database_url",
        )
    finally:
        await engine.dispose()
    return Finding("image records", "ok", f"{url.get_backend_name()} answers")


def _formats() -> Finding:
    if find_spec("pi_heif") is None:
        return Finding(
            "image formats",
            "note",
            "pi-heif is not installed",
            "HEIC photos, as iPhones make them, are refused with 415",
            "pip install 'jobwire[heic]'",
        )
    return Finding("image formats", "ok", "HEIC photos are read")


def _detection(settings: Settings) -> Iterator[Finding]:
    if not settings.images.detectors:
        yield Finding(
            "image detection",
            "note",
            "nothing is detected",
            "faces stay visible in published images",
            "remove images.detect: none",
        )
    elif "faces" in settings.images.detectors:
        try:
            weights.weights(weights.YUNET)
            weights.weights(weights.CENTERFACE)
        except SetupError as error:
            yield Finding("image detection", "fault", error.message, "uploads are refused")
        else:
            yield Finding("image detection", "ok", ", ".join(settings.images.detectors))


def _keys(settings: Settings) -> Iterator[Finding]:
    images = settings.images
    if not images.token_private_key and not images.token_public_key:
        yield Finding("image token keys", "ok", "of the data dir")
        return
    from jobwire.systems.images.key_files import private_key, public_key

    try:
        if images.token_private_key:
            private_key(settings)
        if images.token_public_key:
            public_key(settings)
    except SettingsError as error:
        yield Finding("image token keys", "fault", "; ".join(error.faults))
    else:
        where = "of the settings" if images.token_private_key else "of the data dir"
        yield Finding("image token keys", "ok", where)


def _spool(settings: Settings) -> Iterator[Finding]:
    folder = spool_folder(settings)
    if not folder.exists():
        yield Finding("image spool", "ok", "empty")
        return
    waiting = len(list(folder.glob("*.json")))
    free_mb = shutil.disk_usage(folder).free >> 20
    if free_mb < max(_FREE_MB, settings.images.spool_mb):
        yield Finding(
            "image spool",
            "note",
            f"{free_mb} MB are free at {folder}",
            "uploads get 503 when the disk is full",
            "free some space, or lower images.spool_mb",
        )
    else:
        yield Finding("image spool", "ok", f"{waiting} images wait, {free_mb} MB are free")


async def _results(settings: Settings, config: Config) -> AsyncIterator[Finding]:
    try:
        config = config.for_keys(settings.images.key_prefix)
        async with Connection.open(config, name="jobwire-doctor") as connection:
            stream = image_status(settings, connection).keys.result
            dead = int(str(await connection.call("XLEN", f"{stream}:dead")))
    except ValkeyError as error:
        yield Finding("image results", "unreachable", f"{config.address}: {error}")
        return
    if dead:
        yield Finding(
            "image results",
            "note",
            f"{dead} results are in {stream}:dead",
            "no record could take them",
            f"read them: XRANGE {stream}:dead - +; then delete the key",
        )
    else:
        yield Finding("image results", "ok", "no dead letters")
