"""The database of image records: SQLite by default, PostgreSQL by URL (I-14).

Understands the forms in which addresses are written elsewhere: `postgres://`, `postgresql://`,
`sqlite:///file`, and `sslmode=` in the query. The schema is made and upgraded by the migrations
beside this file; several programs may start at once.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, event, make_url, text
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from jobwire.job.errors import BackendUnavailable

_POSTGRESQL: Final = "postgresql+psycopg"
_SQLITE: Final = "sqlite+aiosqlite"
_DRIVERS: Final = {
    "postgres": _POSTGRESQL,
    "postgresql": _POSTGRESQL,
    "postgresql+psycopg": _POSTGRESQL,
    "sqlite": _SQLITE,
    "sqlite+aiosqlite": _SQLITE,
}
_CONNECT_TIMEOUT_S: Final = 5
_LOCK_TIMEOUT_S: Final = 10
_MIGRATION_LOCK: Final = 0x6A6F62776972  # any number that others do not use


class RecordsUnavailable(BackendUnavailable):
    """The database did not answer."""


class BadDatabaseUrl(ValueError):
    """The address of the database cannot be used; the text says why, without the password."""


def database_url(given: str) -> URL:
    """The address for SQLAlchemy."""
    try:
        url = make_url(given)
    except (ArgumentError, ValueError) as error:
        raise BadDatabaseUrl(
            "is not an address; write it as postgresql://user:password@host:5432/name"
        ) from error
    driver = _DRIVERS.get(url.drivername)
    if driver is None:
        raise BadDatabaseUrl(f"{url.drivername!r} is not supported; use PostgreSQL or SQLite")
    return url.set(drivername=driver)


def open_engine(url: URL) -> AsyncEngine:
    """An engine whose statements have time limits; nothing is connected yet."""
    if url.drivername == _POSTGRESQL:
        limits = f"-c statement_timeout={_LOCK_TIMEOUT_S * 1000}"
        given = url.query.get("options")
        options = " ".join([limits, *([given] if isinstance(given, str) else given or ())])
        return create_async_engine(
            url.set(query={**url.query, "options": options}),
            pool_pre_ping=True,
            pool_size=5,
            max_overflow=5,
            pool_timeout=_LOCK_TIMEOUT_S,
            connect_args={
                "connect_timeout": _CONNECT_TIMEOUT_S,
                # Otherwise a database with the encoding SQL_ASCII returns bytes instead of text.
                "client_encoding": "utf8",
            },
        )
    if url.database and url.database != ":memory:":
        file = Path(url.database)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # SQLite gives its log and index the mode of the database.
        with contextlib.suppress(OSError):
            file.touch(mode=0o600)
            if file.stat().st_uid == os.geteuid():
                file.chmod(0o600)
    engine = create_async_engine(url, connect_args={"timeout": _LOCK_TIMEOUT_S})
    event.listen(engine.sync_engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    # Readers do not wait for a writer, a commit survives a crash of the machine, and what was
    # deleted or overwritten is filled with zeros in the file.
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


async def migrate(engine: AsyncEngine, revision: str = "head") -> None:
    """Make or upgrade the schema; waits for another program that does.

    RecordsUnavailable if the database does not answer.
    """
    try:
        await _migrate(engine, revision)
    except (OSError, OperationalError) as error:
        raise RecordsUnavailable(
            "the database of images does not answer", detail=reason_of(error)
        ) from error


async def _migrate(engine: AsyncEngine, revision: str) -> None:
    async with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            # DDL is part of this transaction, which the driver would not begin by itself.
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            await connection.execute(text("BEGIN IMMEDIATE"))
            try:
                await connection.run_sync(_upgrade, revision)
            except BaseException:
                await connection.execute(text("ROLLBACK"))
                raise
            await connection.execute(text("COMMIT"))
        else:
            await connection.execute(
                text("SELECT pg_advisory_xact_lock(:number)"), {"number": _MIGRATION_LOCK}
            )
            await connection.run_sync(_upgrade, revision)
            await connection.commit()


def _upgrade(connection: Connection, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def reason_of(error: BaseException) -> str:
    """The driver's text, without the statement and its values."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    lines = str(cause).splitlines()
    return f"{type(cause).__name__}: {lines[0] if lines else ''}"
