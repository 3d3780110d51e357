"""A gateway with jobs, queues and images, and a worker, on servers that fail over or move slots."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx

from jobwire.local import free_port
from jobwire.objects import BucketConfig
from tests.cli.runner import clean_env
from tests.support import Program, wait_until_sync
from tests.support.program import ROOT
from tests.systems.images.site import plain_photo, put

Json = dict[str, Any]


class Site:
    """`env` are further settings of the programs."""

    def __init__(
        self,
        url: str,
        bucket: BucketConfig,
        folder: Path,
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.port = free_port()
        self.env = {
            **{name: "" for name in os.environ if name not in clean_env()},
            "JOBWIRE_VALKEY_URL": url,
            "JOBWIRE_QUEUES_URL": url,
            "JOBWIRE_DATA_DIR": str(folder),
            "JOBWIRE_OBJECTS_ENDPOINT": bucket.endpoint,
            "JOBWIRE_OBJECTS_BUCKET": bucket.bucket,
            "JOBWIRE_OBJECTS_ACCESS_KEY": bucket.access_key,
            "JOBWIRE_OBJECTS_SECRET_KEY": bucket.secret_key,
            "JOBWIRE_IMAGES_DETECT": "none",
            "JOBWIRE_IMAGES_WORKERS": "1",
            "JOBWIRE_PREDICTIONS_TENANT": "acme",
            "JOBWIRE_WORKER_LEASE": "3s",
            **env,
        }
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}", timeout=60, trust_env=False
        )

    @contextlib.contextmanager
    def running(self) -> Generator[None]:
        gateway = ("gateway", "--port", str(self.port))
        worker = ("worker", "tests.contracts.all_systems_app:app")
        with self._program(*gateway), self._program(*worker) as started, self.client:
            started.wait_for_line("worker with", timeout_s=60)
            wait_until_sync(self._is_ready, "the gateway")
            yield

    def _program(self, *words: str) -> Program:
        command = [sys.executable, "-m", "jobwire", *words]
        return Program(command=command, cwd=ROOT, env=self.env)

    def _is_ready(self) -> bool:
        try:
            return self.client.get("/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def use_all(self) -> None:
        """One job of each system, from its submission to its end. Calls in flight when the primary
        fails are repeated, as a client does."""
        job = self._again("POST", "/v1/jobs", {"task": "echo", "payload": {"x": 1}})
        queued = self._again("POST", "/v1/queues/mail/jobs", {"name": "echo", "data": {"x": 1}})
        image = self._again("POST", "/v1/images", {"content_type": "image/jpeg"})
        wait_until_sync(lambda: put(self.client, image, plain_photo()).status_code in (202, 409))
        self.until(f"/v1/jobs/{job['job_id']}", lambda seen: seen["status"] == "done")
        (row,) = queued["jobs"]
        self.until(f"/v1/queues/mail/jobs/{row['id']}", lambda seen: seen["state"] == "completed")
        self.until(f"/v1/images/{image['image_id']}", lambda seen: seen["status"] == "ready")

    def submit(self, task: str) -> str:
        """Submit a job; returns its id."""
        return str(self._again("POST", "/v1/jobs", {"task": task, "payload": {"x": 1}})["job_id"])

    def _again(self, method: str, path: str, body: Json) -> Json:
        def accepted() -> Json | None:
            answer = self.client.request(method, path, json=body)
            assert answer.status_code in (201, 202, 503), answer.text
            return answer.json() if answer.status_code < 300 else None

        answer = wait_until_sync(accepted, path, timeout_s=60)
        assert answer is not None
        return answer

    def until(self, path: str, condition: Callable[[Json], bool]) -> None:
        """Wait until the answer to a path meets a condition."""

        def met() -> bool:
            answer = self.client.get(path)
            return answer.status_code == 200 and condition(answer.json())

        wait_until_sync(met, path, timeout_s=60)
