"""A real PostgreSQL for tests, as Debian ships it (15); one server for all parallel workers."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import psycopg
import pytest

from jobwire.local import free_port
from tests.support.program import Program
from tests.support.shared_server import Facts, shared_server
from tests.support.unique_names import Fresh
from tests.support.wait import wait_until_sync
from tests.system import postgres_programs

_USER: Final = "postgres"


@contextlib.contextmanager
def _postgres(_home: Path) -> Generator[Facts]:
    programs = postgres_programs()
    assert programs is not None
    # Not in the folder of the test run: PostgreSQL refuses to run as root, and another user
    # cannot enter that folder.
    folder = Path(tempfile.mkdtemp(prefix="jobwire-postgres-"))
    as_user: list[str] = []
    if os.geteuid() == 0:
        user = pwd.getpwnam(_USER)
        os.chown(folder, user.pw_uid, user.pw_gid)
        as_user = ["setpriv", f"--reuid={_USER}", f"--regid={user.pw_gid}", "--clear-groups"]
        as_user += ["--pdeathsig", "KILL"]
    data = folder / "data"
    initdb = [programs / "initdb", "-D", data, "-U", _USER, "--auth=trust", "--no-sync"]
    initdb += ["--encoding=UTF8", "--no-locale"]  # not those of the caller's locale
    subprocess.run([*as_user, *initdb], check=True, capture_output=True, timeout=100, cwd=folder)
    port = free_port()
    options = ("fsync=off", "unix_socket_directories=", "shared_buffers=16MB")
    command = [*as_user, programs / "postgres", "-D", data, "-h", "127.0.0.1", "-p", str(port)]
    try:
        with Program(command=[*command, *(part for each in options for part in ("-c", each))]):
            facts = {"url": f"postgresql://{_USER}@127.0.0.1:{port}/postgres"}
            wait_until_sync(lambda: _answers(facts), "PostgreSQL to answer")
            yield facts
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _answers(facts: Facts) -> bool:
    try:
        psycopg.connect(facts["url"], connect_timeout=60).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[str]:
    """The URL of a real PostgreSQL. Use `postgres_url` for a database of the test's own."""
    if postgres_programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql-15)")
    folder = tmp_path_factory.getbasetemp()
    folder = folder if worker_id == "master" else folder.parent
    with shared_server(folder, "postgres", _postgres, _answers) as facts:
        yield facts["url"]


@pytest.fixture
def postgres_url(postgres: str, fresh: Fresh) -> Iterator[str]:
    """The URL of an empty database for this test alone."""
    name = fresh("db").replace("-", "_").lower()
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"')  # pyright: ignore[reportArgumentType, reportCallIssue] - its own name
        yield postgres.removesuffix("/postgres") + f"/{name}"
        admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')  # pyright: ignore[reportArgumentType, reportCallIssue] - as above
