"""What a user of images does, over plain HTTP; and what an operator sees on the servers.

Nothing here knows which program is on the other side: the end-to-end tests and those with foreign
programs use it.
"""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import httpx
import numpy as np

from tests.e2e.endpoints import Endpoints
from tests.handlers.photo.images import jpeg
from tests.support import Plain, wait_until_sync
from tests.support.s3 import boto_client

Json = dict[str, Any]
STAGES = ["queued", "validating", "decoding", "processing", "encoding", "uploading", "done"]
SUCCESS = {
    *("image_id", "status", "storage_key", "sha256", "etag", "file_size", "content_type"),
    *("original_width", "original_height", "processed_width", "processed_height", "processed_at"),
}
FAILURE = {"image_id", "status", "error_code", "error_message", "failed_at"}


@cache
def small_photo() -> bytes:
    """A JPEG of 160 × 120 pixels."""
    return jpeg(np.full((120, 160, 3), 90, np.uint8))


@dataclass(frozen=True, slots=True)
class Flow:
    """One installation in use."""

    endpoints: Endpoints
    http: httpx.Client
    server: Plain

    def announce(self) -> Json:
        answer = self.http.post("/v1/images", json={"content_type": "image/jpeg"})
        assert answer.status_code == 201, answer.text
        return answer.json()

    def put(self, image: Json, body: bytes) -> httpx.Response:
        headers = {"content-type": "image/jpeg", "authorization": f"Bearer {image['token']}"}
        return httpx.put(
            image["upload_url"], content=body, headers=headers, timeout=60, trust_env=False
        )

    def upload(self, body: bytes) -> str:
        image = self.announce()
        answer = self.put(image, body)
        assert answer.status_code == 202, answer.text
        return image["image_id"]

    def put_twice(self, image: Json, body: bytes) -> list[int]:
        """Two uploads of the same image at the same time: their statuses."""
        with ThreadPoolExecutor(2) as threads:
            sent = [threads.submit(self.put, image, body) for _ in range(2)]
        return sorted(each.result().status_code for each in sent)

    def ended(self, image_id: str) -> Json:
        """The record, once it has ended."""

        def found() -> Json | None:
            answer = self.http.get(f"/v1/images/{image_id}")
            assert answer.status_code == 200, answer.text
            return answer.json() if answer.json()["status"] != "processing" else None

        return cast(Json, wait_until_sync(found, f"the end of {image_id}", timeout_s=60))

    def events(self, image_id: str) -> list[tuple[str, Json]]:
        """The event stream of an image, to its end."""
        answer = self.http.get(f"/v1/images/{image_id}/events")
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        found: list[tuple[str, Json]] = []
        for block in answer.text.split("\n\n"):
            lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
            if "event" in lines:
                found.append((lines["event"], json.loads(lines["data"])))
        return found

    def watched(self, body: bytes) -> tuple[str, list[tuple[str, Json]]]:
        """Upload a photo that is followed from its announcement to its end."""
        image = self.announce()
        with ThreadPoolExecutor(1) as thread:
            following = thread.submit(self.events, image["image_id"])
            assert self.put(image, body).status_code == 202
            return image["image_id"], following.result(120)

    # ── on the servers ───────────────────────────────────────────────────────────────────────────

    def status(self, image_id: str) -> dict[str, str]:
        return cast("dict[str, str]", self.server.hgetall(f"image:status:{image_id}"))

    def results(self, image_id: str) -> list[dict[str, str]]:
        entries = cast("list[tuple[str, dict[str, str]]]", self.server.xrange("image:result"))
        return [fields for _, fields in entries if fields["image_id"] == image_id]

    def stored(self, image_id: str) -> bytes:
        """The published photo, as it is in the bucket."""
        bucket = self.endpoints.bucket
        found = boto_client(bucket).get_object(Bucket=bucket.bucket, Key=f"images/{image_id}.webp")
        return found["Body"].read()

    # ── checks ───────────────────────────────────────────────────────────────────────────────────

    def check_ready(self, image_id: str) -> None:
        """Record, hash, result and bucket agree that the image is published."""
        record = self.ended(image_id)
        assert record["status"] == "ready", record
        (result,) = self.results(image_id)
        assert set(result) - {"hidden_areas", "hidden_part"} == SUCCESS
        assert result["status"] == "processed"
        body = self.stored(image_id)
        assert body[8:12] == b"WEBP"
        assert record["sha256"] == result["sha256"] == hashlib.sha256(body).hexdigest()
        assert result["file_size"] == str(len(body))
        assert httpx.get(record["url"], trust_env=False, timeout=30).content == body
        status = self.status(image_id)
        assert set(status) == {"stage", "progress", "updated_at"}
        assert (status["stage"], status["progress"]) == ("done", "100")
        self.check_lifetimes(image_id)

    def check_failed(self, image_id: str, code: str) -> None:
        """Record, hash and result agree that the image failed with this code."""
        record = self.ended(image_id)
        assert (record["status"], record["error"]["code"]) == ("failed", code)
        (result,) = self.results(image_id)
        assert set(result) == FAILURE
        assert (result["status"], result["error_code"]) == ("failed", code)
        status = self.status(image_id)
        assert (status["stage"], status["progress"]) == ("failed", "-1")
        assert status["error"] == result["error_message"] == record["error"]["message"]
        self.check_lifetimes(image_id)

    def check_lifetimes(self, image_id: str) -> None:
        assert self.server.get(f"image:upload:{image_id}") == "claimed"
        for key in (f"image:status:{image_id}", f"image:upload:{image_id}"):
            assert 0 < int(str(self.server.ttl(key))) <= 3600


def check_events(events: list[tuple[str, Json]], last: str) -> None:
    """An ordered part of the stages, with progress that never falls, up to the terminal event."""
    *before, (name, data) = events
    assert name == last
    assert {each for each, _ in before} <= {"processing"}
    stages = [each["stage"] for _, each in before]
    assert stages == [stage for stage in STAGES[:-1] if stage in stages]
    progress = [int(each["progress"]) for _, each in before]
    assert progress == sorted(progress)
    assert int(data["progress"]) == (100 if last == "ready" else -1)
    assert ("error" in data) == (last == "failed")
