"""Crashes, outages and load: every accepted image gets one result, and no original remains."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from jobwire.job.errors import JobwireError
from jobwire.local import LocalValkey
from jobwire.objects import AccessDenied, Bucket, BucketConfig
from jobwire.systems.images.contract import FAILURE_FIELDS, ImageErrorCode, ImageKeys, Stage
from jobwire.systems.images.processing import Processing
from jobwire.systems.images.scripts import SCRIPTS
from jobwire.systems.images.spool import Spool, SpooledUpload
from jobwire.systems.images.status import ImageStatus
from jobwire.systems.images.tokens import UploadGrant
from jobwire.valkey import Connection
from tests.support import Fresh, Plain, Proxy, clause, wait_until, wait_until_sync
from tests.support.resp import Command
from tests.support.s3_proxy import S3Proxy, dropped
from tests.support.wait import DEADLINE_S
from tests.systems.images.site import ImageSite, plain_photo

# Not on the shared site.
KEYS = ImageKeys("{faults}:")
pytestmark = pytest.mark.keeps(f"{KEYS.result}*")


class Killed(BaseException):
    """Simulates kill -9: no code of the program runs after it."""


class FakePhoto:
    """A published photo without the work."""

    file_size, sha256, width, height = 9, "ab" * 32, 3, 2
    original_width, original_height, content_type = 6, 4, "image/webp"
    hidden = ()
    hidden_part = 0.0
    is_doubtful = False


class Photos:
    """A pipeline that writes a file and reports its steps; it may die at one of them."""

    def __init__(self, die_at: str = "") -> None:
        self._die_at = die_at
        self.runs = 0
        self.areas: Sequence[Sequence[float]] = ()

    async def process(
        self,
        source: Path,
        target: Path,
        *,
        content_type: str,
        max_bytes: int,
        areas: Sequence[Sequence[float]] = (),
        hide_from: str = "doubtful",
        on_step: Callable[[str], None],
    ) -> FakePhoto:
        self.runs += 1
        self.areas = areas
        _check_original(source)
        assert (content_type, max_bytes) == ("image/jpeg", 1000)
        for step in ("validate", "decode", "detect", "hide", "encode"):
            on_step(step)
            await asyncio.sleep(0)
            if step == self._die_at:
                raise Killed
        _write(target)
        return FakePhoto()


def _check_original(source: Path) -> None:
    assert source.read_bytes() == b"an original with a face"


def _write(target: Path) -> None:
    target.write_bytes(b"published")


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def modes(folder: Path) -> set[str]:
    return {oct(file.stat().st_mode & 0o777) for file in folder.iterdir()}


def sizes(folder: Path) -> set[int]:
    return {file.stat().st_size for file in folder.iterdir()}


def grant(image_id: str) -> UploadGrant:
    return UploadGrant(
        image_id=image_id,
        storage_key=f"images/{image_id}.webp",
        content_type="image/jpeg",
        max_size=1000,
        expires_at=0,
    )


def accept(spool: Spool, image_id: str) -> SpooledUpload:
    body = spool.receive(image_id, "0123456789abcdef")
    body.write(b"an original with a face")
    return spool.accept(body, grant(image_id))


@asynccontextmanager
async def processing(
    connection: Connection, spool: Spool, bucket: Bucket, photos: Any
) -> AsyncGenerator[Processing]:
    made = Processing(connection, ImageStatus(connection, KEYS), spool, bucket, photos)
    async with made.running():
        yield made


WITHOUT_FILES = """
import asyncio, logging, resource, sys
from pathlib import Path

from jobwire.objects import Bucket, BucketConfig
from jobwire.systems.images.contract import ImageKeys
from jobwire.systems.images.processing import Processing
from jobwire.systems.images.scripts import SCRIPTS
from jobwire.systems.images.spool import Spool
from jobwire.systems.images.status import ImageStatus
from jobwire.valkey import Connection

logging.basicConfig(format="%(message)s")
url, endpoint, bucket, access_key, secret_key, folder = sys.argv[1:]

async def main():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    spool = Spool(Path(folder))
    objects = Bucket(
        BucketConfig(endpoint=endpoint, bucket=bucket, access_key=access_key, secret_key=secret_key)
    )
    await objects.ping()
    await asyncio.to_thread(int)  # both start their threads
    async with Connection.open(url) as connection:
        await connection.load_scripts(SCRIPTS.values())
        status = ImageStatus(connection, ImageKeys("{faults}:"))
        processing = Processing(connection, status, spool, objects, None)
        async with processing.running():
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
            await asyncio.to_thread(sys.stdin.readline)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            while processing.unavailable() is not None:
                await asyncio.sleep(0.01)
            print("uploads are accepted", flush=True)
            await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""


@clause("I-2", "O-15")
async def test_i02_a_gateway_without_a_free_file_goes_on(
    valkey: LocalValkey, seaweedfs: BucketConfig, tmp_path: Path
) -> None:
    """Regression: clients that opened as many connections as there may be files ended it. In a
    process of its own: the limit is one of the whole process."""
    login = (seaweedfs.access_key, seaweedfs.secret_key)
    words = (valkey.url, seaweedfs.endpoint, seaweedfs.bucket, *login, str(tmp_path))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WITHOUT_FILES, *words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    seen = ""
    async with asyncio.timeout(DEADLINE_S):
        for line in ("Too many open files", "uploads are accepted"):
            while line not in seen:
                read = await process.stdout.readline()
                assert read, f"the process ended: {seen}"
                seen += read.decode()
            process.stdin.write(b"\n")
        assert await process.wait() == 0, seen


def dying(spot: str) -> tuple[Photos, Callable[[pytest.MonkeyPatch], None]]:
    """A pipeline that dies at a given point: a step, or before or after a call."""
    if "." not in spot:
        return Photos(spot), lambda _: None
    when, owner, name = spot.split(".")
    kind = {"bucket": Bucket, "spool": Spool, "status": ImageStatus}[owner]
    original = getattr(kind, name)

    def patch(patches: pytest.MonkeyPatch) -> None:
        if inspect.iscoroutinefunction(original):

            async def call(*args: Any, **more: Any) -> Any:
                if when == "after":
                    await original(*args, **more)
                raise Killed

            patches.setattr(kind, name, call)
        else:

            def direct(*args: Any, **more: Any) -> Any:
                if when == "after":
                    original(*args, **more)
                raise Killed

            patches.setattr(kind, name, direct)

    return Photos(), patch


SPOTS = [
    *("validate", "decode", "detect", "hide", "encode"),
    *("before.bucket.put", "after.bucket.put"),
    *("before.spool.finish", "after.spool.finish"),
    *("before.status.finish", "after.status.finish"),
    *("before.spool.remove", "after.spool.remove"),
]


@clause("I-7", "I-30")
async def test_i30_a_crash_at_any_step_leaves_one_result_and_no_original(
    connection: Connection, plain: Plain, tmp_path: Path, seaweedfs: BucketConfig, fresh: Fresh
) -> None:
    bucket = Bucket(seaweedfs)
    for spot in SPOTS:
        image_id = fresh("crash")
        folder = tmp_path / image_id
        photos, patch = dying(spot)
        spool = Spool(folder)
        accept(spool, image_id)
        with pytest.MonkeyPatch.context() as patches:
            patch(patches)
            try:
                async with processing(connection, spool, bucket, photos):
                    await asyncio.Event().wait()
            except* Killed:
                pass
        spool.close()
        # The next start.
        spool = Spool(folder)
        spool.recover()
        async with processing(connection, spool, bucket, Photos()):
            await wait_until(lambda spool=spool: spool.count == 0, spot)
        spool.close()
        assert names(folder) == ["spool.lock"], spot
        found = [fields for _, fields in _entries(plain) if fields["image_id"] == image_id]
        assert [fields["status"] for fields in found] == ["processed"], spot
        assert plain.hget(KEYS.status(image_id), "stage") == "done", spot
        stored = await bucket.get(f"images/{image_id}.webp")
        assert getattr(stored, "body", None) == b"published", spot
        await bucket.delete(f"images/{image_id}.webp")


def _entries(plain: Plain) -> list[tuple[str, dict[str, str]]]:
    return plain.xrange(KEYS.result)  # pyright: ignore[reportReturnType] - typed in part


class FailingPhotos(Photos):
    """A pipeline that fails with a code."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self._code = code

    async def process(self, source: Path, target: Path, **more: Any) -> FakePhoto:
        raise JobwireError("it failed; send another photo", code=self._code, detail="/secret/path")


@clause("I-3", "I-6")
async def test_i06_each_code_reaches_the_hash_and_the_stream(
    connection: Connection, plain: Plain, tmp_path: Path, seaweedfs: BucketConfig, fresh: Fresh
) -> None:
    async def refuse(*_: object, **_more: object) -> None:
        raise AccessDenied("the keys miss a permission")

    for code in ImageErrorCode:
        if code is ImageErrorCode.CANCELED:
            continue  # by a deletion: test_api.py
        image_id = fresh("failed")
        spool = Spool(tmp_path / image_id)
        accept(spool, image_id)
        is_upload = code is ImageErrorCode.UPLOAD_FAILED
        photos = Photos() if is_upload else FailingPhotos(code)
        with pytest.MonkeyPatch.context() as patches:
            if is_upload:
                patches.setattr(Bucket, "put", refuse)
            async with processing(connection, spool, Bucket(seaweedfs), photos):
                await wait_until(lambda spool=spool: spool.count == 0, code)
        spool.close()
        assert names(spool.folder) == ["spool.lock"]
        (fields,) = [fields for _, fields in _entries(plain) if fields["image_id"] == image_id]
        assert list(fields) == list(FAILURE_FIELDS)
        assert (fields["status"], fields["error_code"]) == ("failed", code)
        assert "secret" not in fields["error_message"]
        status = cast("dict[str, str]", plain.hgetall(KEYS.status(image_id)))
        assert (status["stage"], status["progress"]) == ("failed", "-1")
        assert status["error"] == fields["error_message"]
        assert plain.ttl(KEYS.status(image_id)) > 3500


@clause("I-30")
async def test_i30_the_original_is_deleted_before_its_result_is_published(
    connection: Connection, plain: Plain, tmp_path: Path, seaweedfs: BucketConfig, fresh: Fresh
) -> None:
    seen: list[list[str]] = []
    finish = ImageStatus.finish

    async def watched(self: ImageStatus, *args: Any) -> Any:
        seen.append(names(tmp_path))
        return await finish(self, *args)

    spool = Spool(tmp_path)
    entry = accept(spool, fresh("gone"))
    assert modes(tmp_path) == {"0o600"}
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(ImageStatus, "finish", watched)
        async with processing(connection, spool, Bucket(seaweedfs), Photos()):
            await wait_until(lambda: spool.count == 0, "the end")
    spool.close()
    assert seen == [[f"{entry.image_id}.json", "spool.lock"]]
    await Bucket(seaweedfs).delete(entry.storage_key)


@clause("I-2", "I-30")
async def test_i02_claims_of_bodies_that_a_crash_cut_off_are_released(
    connection: Connection, plain: Plain, tmp_path: Path, seaweedfs: BucketConfig
) -> None:
    status = ImageStatus(connection, KEYS)
    spool = Spool(tmp_path)
    mine = spool.receive("mine", "00000000000000aa")
    mine.write(b"half of an original")
    assert await status.claim("mine", mine.attempt)
    # Another gateway has accepted this one; this gateway crashed before its refusal.
    foreign = spool.receive("foreign", "00000000000000bb")
    assert await status.claim("foreign", "00000000000000cc")
    assert not await status.claim("foreign", foreign.attempt)
    spool.close()
    spool = Spool(tmp_path)
    spool.recover()
    assert sizes(tmp_path) == {0}
    async with processing(connection, spool, Bucket(seaweedfs), Photos()):
        await wait_until(lambda: not plain.exists(KEYS.upload("mine")), "the release")
        await wait_until(lambda: names(tmp_path) == ["spool.lock"])
    spool.close()
    assert plain.get(KEYS.upload("foreign")) == "claimed"


@clause("I-2", "I-20", "I-30")
async def test_i30_an_upload_accepted_during_the_release_of_claims_keeps_its_original(
    connection: Connection, plain: Plain, tmp_path: Path, seaweedfs: BucketConfig
) -> None:
    """Regression: it was taken for a body that never arrived whole; claim and original went."""
    status = ImageStatus(connection, KEYS)
    spool = Spool(tmp_path)
    for number in range(5):
        spool.abandon(spool.receive(f"left-{number}", f"{number:016x}"))
    bodies = [spool.receive(f"body-{number}", f"{number + 16:016x}") for number in range(20)]
    for body in bodies:
        assert await status.claim(body.image_id, body.attempt)
    release, released = ImageStatus.release, list[str]()

    async def hesitating(self: ImageStatus, image_id: str, attempt: str) -> None:
        """The bodies arrive while the server does not answer."""
        if not released:
            for body in bodies:
                await asyncio.to_thread(spool.accept, body, grant(body.image_id))
        released.append(image_id)
        await release(self, image_id, attempt)

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(ImageStatus, "release", hesitating)
        async with processing(connection, spool, Bucket(seaweedfs), Photos()):
            await wait_until(lambda: not list(tmp_path.glob("left-*")), "the release")
    spool.close()
    assert sorted(released) == [f"left-{number}" for number in range(5)]
    assert [body.image_id for body in bodies if not body.path.exists()] == []
    assert plain.exists(*(KEYS.upload(body.image_id) for body in bodies)) == len(bodies)


@clause("I-2", "I-20")
def test_i20_an_upload_accepted_in_a_thread_is_never_a_leftover(tmp_path: Path) -> None:
    """Regression: it was in neither set if it was accepted between the two looks."""
    spool = Spool(tmp_path)
    body = spool.receive("photo", "0123456789abcdef")

    class Entries(dict[str, SpooledUpload]):
        def values(self) -> Any:
            found = list(super().values())
            if not self:
                spool.accept(body, grant("photo"))
            return found

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(spool, "_entries", Entries())
        assert list(spool.leftovers()) == []
        assert spool.count == 1
    spool.close()


@clause("I-20", "I-21")
@pytest.mark.parametrize("what", ["size", "in_work", "of_tenant", "leftovers"])
def test_i21_a_spool_is_counted_while_a_thread_accepts_an_upload(tmp_path: Path, what: str) -> None:
    """Regression: `dictionary changed size during iteration`, an upload answered with 500."""
    spool = Spool(tmp_path)
    first = accept(spool, "first")
    later = iter(range(1000))

    class Watched:
        """Another upload is accepted whenever this one is looked at."""

        def __getattr__(self, name: str) -> Any:
            accept(spool, f"later-{next(later)}")
            return getattr(first, name)

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(spool, "_entries", {"first": Watched()})
        found = getattr(spool, what)
        if callable(found):
            found = list(cast("Any", found("") if what == "of_tenant" else found()))
        expected: dict[str, object] = {"size": first.size, "in_work": 1, "of_tenant": [first.size]}
        assert found == expected.get(what, found)
        assert spool.count > 1
    spool.close()


@clause("I-30")
async def test_i30_an_image_that_crashes_every_gateway_fails_after_four_crashes(
    connection: Connection, plain: Plain, tmp_path: Path, seaweedfs: BucketConfig, fresh: Fresh
) -> None:
    image_id = fresh("poison")
    spool = Spool(tmp_path)
    accept(spool, image_id)
    for _ in range(4):
        spool.close()
        spool = Spool(tmp_path)
        spool.recover()
    photos = Photos()
    async with processing(connection, spool, Bucket(seaweedfs), photos):
        await wait_until(lambda: spool.count == 0, "the end")
    spool.close()
    assert photos.runs == 0
    (fields,) = [fields for _, fields in _entries(plain) if fields["image_id"] == image_id]
    assert fields["error_code"] == "INTERNAL"


@clause("I-7", "I-31")
async def test_i31_keys_of_waiting_images_are_renewed(
    connection: Connection, plain: Plain, tmp_path: Path
) -> None:
    status = ImageStatus(connection, KEYS)
    assert await status.claim("waiting", "1")
    await status.advance("waiting", Stage.DECODING)
    for key in (KEYS.status("waiting"), KEYS.upload("waiting")):
        plain.expire(key, 10)
    await status.extend_ttl("waiting", Stage.DECODING)
    assert plain.ttl(KEYS.status("waiting")) > 3500
    assert plain.ttl(KEYS.upload("waiting")) > 3500
    # A server that lost everything.
    plain.delete(KEYS.status("waiting"), KEYS.upload("waiting"))
    await status.extend_ttl("waiting", Stage.DECODING)
    assert not await status.claim("waiting", "2")
    assert plain.hget(KEYS.status("waiting"), "stage") == "decoding"


@clause("I-31")
def test_i31_accepted_uploads_wait_for_valkey_and_the_bucket(
    valkey: LocalValkey, seaweedfs: BucketConfig, plain: Plain, tmp_path: Path, proxy: Proxy
) -> None:
    url = proxy.url(valkey.url)
    with (
        S3Proxy(seaweedfs) as store,
        ImageSite(url, store.config, tmp_path, key_prefix="{faults}:", name="tests-faults") as site,
    ):
        away = [True]
        store.every(lambda seen: dropped if away[0] and "/images/" in seen.path else None)
        first = site.announce()
        assert site.put(first, plain_photo()).status_code == 202
        wait_until_sync(
            lambda: plain.hget(KEYS.status(first["image_id"]), "stage") == "uploading",
            "the first image to wait for the bucket",
        )
        store.every(lambda seen: dropped if away[0] else None)
        accepted = [first["image_id"]]

        def try_one() -> httpx.Response:
            """A new image each time: it may be accepted until the outage is noticed."""
            image = site.announce()
            answer = site.put(image, plain_photo())
            if answer.status_code == 202:
                accepted.append(image["image_id"])
            return answer

        wait_until_sync(lambda: try_one().status_code == 503, "uploads to be refused")
        refused = try_one()
        assert (refused.status_code, refused.json()["code"]) == (503, "upload_capacity")
        assert int(refused.headers["retry-after"]) >= 1
        away[0] = False
        wait_until_sync(lambda: try_one().status_code == 202, "uploads to be accepted")
        # The server is unavailable.
        last = site.announce()
        proxy.refuse()
        wait_until_sync(
            lambda: site.put(last, plain_photo()).status_code == 503, "uploads to be refused"
        )
        proxy.accept()
        wait_until_sync(
            lambda: site.put(last, plain_photo()).status_code == 202, "uploads to be accepted"
        )
        accepted.append(last["image_id"])
        for image_id in accepted:
            assert site.ended(image_id)["status"] == "ready"
    found = [fields for _, fields in _entries(plain)]
    assert Counter(fields["status"] for fields in found) == {"processed": len(accepted)}


@clause("I-7", "I-31")
async def test_i31_an_outage_longer_than_the_ttl_loses_no_image(
    valkey: LocalValkey, seaweedfs: BucketConfig, plain: Plain, tmp_path: Path, fresh: Fresh
) -> None:
    """Lifetimes are short here, so that the outages are long."""
    image_id, lifetime_s = fresh("outage"), 0.4
    spool = Spool(tmp_path)
    with Proxy(valkey.port) as server, S3Proxy(seaweedfs) as store:
        away, passed = [True], list[str]()
        store.every(lambda seen: dropped if away[0] else passed.append(seen.path))
        async with Connection.open(server.url(valkey.url), name="tests-outage") as connection:
            status = ImageStatus(connection, KEYS, guard_ttl_s=lifetime_s, status_ttl_s=lifetime_s)
            assert await status.claim(image_id, "0123456789abcdef")
            entry = accept(spool, image_id)
            made = Processing(connection, status, spool, Bucket(store.config), Photos())
            async with made.running():
                # The bucket is unavailable: the keys are renewed four times per lifetime.
                renewed = _runs("extend_ttl")
                await wait_until(lambda: len(server.seen(renewed)) > 12, "three lifetimes")
                # The server is unavailable too, until the image's keys have expired.
                server.refuse()
                keys = (KEYS.status(image_id), KEYS.upload(image_id))
                await wait_until(lambda: not plain.exists(*keys), "the keys to expire")
                away[0] = False
                await wait_until(lambda: any(image_id in path for path in passed), "the write")
                server.accept()
                await wait_until(lambda: spool.count == 0, "the end")
    spool.close()
    found = [fields for _, fields in _entries(plain) if fields["image_id"] == image_id]
    assert [fields["status"] for fields in found] == ["processed"]
    assert names(tmp_path) == ["spool.lock"]
    await Bucket(seaweedfs).delete(entry.storage_key)


def _runs(name: str) -> Callable[[Command], bool]:
    """A condition for the proxy: this script is run."""
    return lambda command: command.name == "EVALSHA" and command.words[1] == SCRIPTS[name].sha
