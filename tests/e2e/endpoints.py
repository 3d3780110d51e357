"""Where the installation under test is: from the environment, or a stack that a fixture started.

E2E_API_URL            http://localhost:8080
E2E_API_KEY            a key with the scopes submit and read
E2E_VALKEY_URL         valkey://localhost:6379
E2E_S3_ENDPOINT        http://localhost:9010
E2E_S3_BUCKET          follow-images
E2E_S3_ACCESS_KEY, E2E_S3_SECRET_KEY
E2E_RESTART_GATEWAY    a shell command that kills the upload gateway and starts it again; without
                       it the test of recovery is skipped
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import httpx

from jobwire.objects import BucketConfig
from tests.support import Plain
from tests.support.servers import plain_from_url

API_URL: Final = "E2E_API_URL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """An installation of images, as its users and its operators reach it."""

    api_url: str
    valkey_url: str
    bucket: BucketConfig
    api_key: str = ""
    restart_gateway: Callable[[], None] | None = None
    """Kill the upload gateway and start it again; None if that cannot be done from here."""

    def client(self) -> httpx.Client:
        """An HTTP client of the API."""
        headers = {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        return httpx.Client(base_url=self.api_url, headers=headers, timeout=60, trust_env=False)

    def server(self) -> Plain:
        """A plain client of the server."""
        return plain_from_url(self.valkey_url, "e2e")


def from_environment(variables: Mapping[str, str] = os.environ) -> Endpoints:
    """The installation that the variables name."""
    restart = variables.get("E2E_RESTART_GATEWAY")

    def run_command() -> None:
        subprocess.run(["/bin/sh", "-c", str(restart)], check=True, timeout=300)

    return Endpoints(
        api_url=variables[API_URL],
        api_key=variables.get("E2E_API_KEY", ""),
        valkey_url=variables["E2E_VALKEY_URL"],
        bucket=BucketConfig(
            endpoint=variables["E2E_S3_ENDPOINT"],
            bucket=variables["E2E_S3_BUCKET"],
            access_key=variables["E2E_S3_ACCESS_KEY"],
            secret_key=variables["E2E_S3_SECRET_KEY"],
        ),
        restart_gateway=run_command if restart else None,
    )
