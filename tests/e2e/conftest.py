"""The installations that the end-to-end tests run against.

With E2E_API_URL: the one that the environment names (`endpoints.py`). Otherwise two that are
started here: the services of deploy/compose.yaml as processes, with PostgreSQL; and `jobwire up`.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from jobwire.objects import BucketConfig
from jobwire.programs.keys import new_api_key
from tests.cli.runner import Up
from tests.e2e.compose import ComposeStack
from tests.e2e.endpoints import API_URL, Endpoints, from_environment
from tests.support import wait_until_sync

WAYS = ["environment"] if os.environ.get(API_URL) else ["compose", "up"]


@pytest.fixture
def compose(postgres: str, tmp_path: Path) -> Iterator[ComposeStack]:
    """The services of the compose file, without Docker."""
    key, hashed = new_api_key()
    keys = json.dumps([{"name": "e2e", "scopes": ["submit", "read"], "hash": hashed}])
    with ComposeStack(tmp_path, postgres, key, keys) as stack:
        yield stack


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """`jobwire up` with images only."""
    env = {"JOBWIRE_IMAGES_WORKERS": "1"}
    with Up(tmp_path, "--only", "images", env=env) as started:
        yield started.wait_until_up()


@pytest.fixture(params=WAYS)
def site(request: pytest.FixtureRequest) -> Endpoints:
    """Each installation in turn."""
    if request.param == "environment":
        return from_environment()
    if request.param == "compose":
        stack: ComposeStack = request.getfixturevalue("compose")
        stack.check_worker()
        return stack.endpoints
    return _endpoints_of(request.getfixturevalue("up"))


def _endpoints_of(up: Up) -> Endpoints:
    found = up.endpoints()
    s3 = found["s3"]

    def is_ready() -> bool:
        with suppress(httpx.TransportError):
            return up.ready()[0] == 200
        return False

    def restart() -> None:
        """kill -9; the supervisor starts another one."""
        killed = up.endpoints()["pids"]["gateway"]
        os.kill(killed, signal.SIGKILL)
        wait_until_sync(lambda: up.endpoints()["pids"]["gateway"] != killed, "another gateway")
        wait_until_sync(is_ready, "the gateway to be ready", timeout_s=60)

    return Endpoints(
        api_url=up.url,
        valkey_url=found["valkey"],
        bucket=BucketConfig(
            endpoint=s3["endpoint"],
            bucket=s3["bucket"],
            access_key=s3["access_key"],
            secret_key=s3["secret_key"],
        ),
        restart_gateway=restart,
    )
