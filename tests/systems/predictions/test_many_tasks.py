"""What operators see of many tasks, and of a store that fails (P-46)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from jobwire.gateway.settings import GatewaySettings
from jobwire.objects import Bucket, BucketConfig
from jobwire.systems.predictions.http import feature
from jobwire.systems.predictions.ids import TaskIds
from jobwire.systems.predictions.intent import Intent, Photo
from tests.gateway.server import Serving, bearer, key
from tests.standins.server import Call, Request, Standin
from tests.support import Fresh, clause
from tests.support.s3 import make_bucket
from tests.support.s3_proxy import Mishap, Reply, S3Proxy, dropped

COUNT = 23_000
START = datetime(2026, 1, 21, tzinfo=UTC)


class ManyTasks(Standin):
    """A store with many intents and open markers, one a second; it lists and reads them."""

    def __init__(self) -> None:
        super().__init__()
        ids = TaskIds("many")
        names = sorted(ids.of_message("bot", number, 1) for number in range(COUNT))
        # The order of the names says nothing: the newest ones are anywhere.
        self.age = {name: number * 7919 % COUNT for number, name in enumerate(names)}
        self.names = names
        self.lists = 0

    def newest(self, count: int) -> list[str]:
        return sorted(self.names, key=lambda name: self.age[name])[:count]

    def call(self, request: Request) -> Call:
        if "list-type" in request.query:
            return "list", lambda: Reply(200, (), self._page(request))
        tid = request.path.rpartition("/")[2]
        return "get", lambda: self._intent(tid) if tid in self.age else Reply(404)

    def _time(self, tid: str) -> datetime:
        return START - timedelta(seconds=self.age[tid])

    def _page(self, request: Request) -> bytes:
        prefix = request.query["prefix"]
        self.lists += 1
        if prefix == "tasks/":
            return b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
        after = request.query.get("start-after", "").removeprefix(prefix)
        first = bisect_right(self.names, after)
        entries = "".join(
            f"<Contents><Key>{prefix}{tid}</Key><Size>0</Size>"
            f"<LastModified>{self._time(tid).isoformat()}</LastModified></Contents>"
            for tid in self.names[first : first + 1000]
        )
        more = str(first + 1000 < COUNT).lower()
        return (
            f"<ListBucketResult><IsTruncated>{more}</IsTruncated>{entries}</ListBucketResult>"
        ).encode()

    def _intent(self, tid: str) -> Reply:
        at_ms = round(self._time(tid).timestamp() * 1000)
        photo = Photo(chat_id=1, user_id=1, message_id=1, file_id="f", date_s=at_ms // 1000)
        intent = Intent(tid=tid, created_ms=at_ms, updated_ms=at_ms, photo=photo)
        headers = (("ETag", '"e"'), ("Last-Modified", "Wed, 21 Jan 2026 00:00:00 GMT"))
        return Reply(200, headers, msgspec.json.encode(intent))


def serving(config: BucketConfig) -> Serving:
    keys = (key("ours", "read", tenant="acme"),)
    return Serving(GatewaySettings(keys=keys), feature(Bucket(config), "acme"))


def get(served: Serving, path: str, status: int = 200) -> Any:
    answer = served.client.get(path, headers=bearer("ours"))
    assert answer.status_code == status, answer.text
    return answer.json()


@clause("P-46")
def test_p46_beyond_twenty_thousand_tasks_the_newest_are_shown_and_all_are_counted(
    moto: BucketConfig,
) -> None:
    with ManyTasks() as store, serving(replace(moto, endpoint=store.url)) as served:
        for path in ("/v1/predictions/recent?limit=20", "/v1/predictions/recent?status=open"):
            body = get(served, path)
            assert [each["id"] for each in body["predictions"]] == store.newest(20)
            assert (body["total"], body["open"]) == (COUNT, COUNT)
        (row,) = get(served, "/v1/overview")["systems"]
        assert row["waiting"] == COUNT
        # All names are listed once for all views, not again for each page.
        assert store.lists <= 3 * (COUNT // 1000 + 1)


@pytest.fixture
def proxy(moto: BucketConfig, fresh: Fresh) -> Iterator[S3Proxy]:
    config = replace(moto, bucket=fresh("views"))
    make_bucket(config)
    with S3Proxy(config) as started:
        yield started


def answered_by(body: bytes) -> Mishap:
    return lambda _forward: Reply(200, (), body)


FAULTS: dict[str, Mishap] = {
    "no answer": dropped,
    "page": answered_by(b"<html>maintenance</html>"),
    "no list": answered_by(b"<ListBucketResult><Contents/></ListBucketResult>"),
}


@clause("P-46")
@pytest.mark.parametrize("fault", FAULTS)
def test_p46_a_list_that_fails_is_a_503(proxy: S3Proxy, fault: str) -> None:
    proxy.every(lambda seen: FAULTS[fault] if "list-type" in seen.path else None)
    with serving(proxy.config) as served:
        for path in ("/v1/predictions", "/v1/predictions/recent"):
            assert get(served, path, 503)["code"] == "unavailable"
