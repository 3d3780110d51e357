"""Real S3 servers for tests: SeaweedFS and moto, one of each for all workers; rclone on demand.

SeaweedFS is the server of `jobwire up`. moto answers contended conditional writes at once, so
races are repeated on it; it checks no signatures and keeps nothing. rclone's server ignores the
conditions of a write: the store that must be refused.
"""

from __future__ import annotations

import contextlib
import socket
import sysconfig
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.config import Config

from jobwire.local import LocalS3, free_port
from jobwire.objects import Bucket, BucketConfig
from jobwire.objects.signed import SignedCalls
from tests.support.program import Program
from tests.support.shared_server import Facts, shared_server
from tests.support.unique_names import Fresh
from tests.support.variants import variants
from tests.support.wait import wait_until_sync

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

StoreName = Literal["seaweedfs", "moto"]
SHARED_BUCKET: Final = "tests"


@contextlib.contextmanager
def _seaweedfs(home: Path) -> Generator[Facts]:
    server = LocalS3(home / "data", bucket=SHARED_BUCKET).start()
    try:
        yield {
            "endpoint": server.endpoint,
            "access_key": server.access_key,
            "secret_key": server.secret_key,
        }
    finally:
        server.kill()  # a graceful stop takes seconds, and the data is not needed
        server.stop()


# moto checks a condition and writes in two steps, with a thread per request, so two writers may
# both succeed. Requests are serialized, which makes it as strict as a store has to be.
_MOTO: Final = """
import io, sys, threading
from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import run_simple

# Of one service: the dispatcher of all of them lists their folders for each request.
app, turn = create_backend_app("s3"), threading.Lock()

def serve(environ, start):
    if size := environ.get("CONTENT_LENGTH"):
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(size)))
    with turn:
        return app(environ, start)

run_simple("127.0.0.1", int(sys.argv[1]), serve, threaded=True)
"""


@contextlib.contextmanager
def _moto(_home: Path) -> Generator[Facts]:
    port = free_port()
    with Program.script(_MOTO, str(port)):
        facts = {
            "endpoint": f"http://127.0.0.1:{port}",
            "access_key": "moto-access",
            "secret_key": "moto-secret",
        }
        wait_until_sync(lambda: _answers(facts), "moto to listen")
        make_bucket(_config(facts, SHARED_BUCKET))
        yield facts


@contextlib.contextmanager
def rclone(folder: Path) -> Generator[BucketConfig]:
    """A store that ignores the conditions of a write."""
    port = free_port()
    (folder / "root" / SHARED_BUCKET).mkdir(parents=True)
    program = Path(sysconfig.get_path("scripts"), "rclone")
    keys = ("rclone-access", "rclone-secret")
    command = [program, "serve", "s3", "--addr", f"127.0.0.1:{port}"]
    command += ["--auth-key", ",".join(keys), "--config", "/dev/null", folder / "root"]
    with Program(command=command):
        config = BucketConfig(
            endpoint=f"http://127.0.0.1:{port}",
            bucket=SHARED_BUCKET,
            access_key=keys[0],
            secret_key=keys[1],
        )
        wait_until_sync(lambda: _listens(config.endpoint), "rclone to listen")
        yield config


def _answers(facts: Facts) -> bool:
    return _listens(facts["endpoint"])


def _listens(endpoint: str) -> bool:
    address = urlsplit(endpoint)
    assert address.hostname
    assert address.port
    with contextlib.suppress(OSError):
        socket.create_connection((address.hostname, address.port), timeout=1).close()
        return True
    return False


def _config(facts: Facts, bucket: str) -> BucketConfig:
    return BucketConfig(
        endpoint=facts["endpoint"],
        bucket=bucket,
        access_key=facts["access_key"],
        secret_key=facts["secret_key"],
    )


def make_bucket(config: BucketConfig) -> None:
    """Create a bucket on a server that permits it."""
    answer = SignedCalls(config).exchange("PUT")
    assert answer.status == 200, answer


def boto_client(config: BucketConfig) -> S3Client:
    """A boto3 client, independent of jobwire, for raw access to the bucket."""
    return boto3.client(
        "s3",
        endpoint_url=config.endpoint,
        aws_access_key_id=config.access_key,
        aws_secret_access_key=config.secret_key,
        region_name=config.region,
        config=Config(s3={"addressing_style": "path"}),
    )


@pytest.fixture(scope="session")
def _servers_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    folder = tmp_path_factory.getbasetemp()
    return folder if worker_id == "master" else folder.parent


@pytest.fixture(scope="session")
def seaweedfs(_servers_folder: Path) -> Iterator[BucketConfig]:
    """The S3 server of `jobwire up`, shared by all workers.

    Use fresh names in its bucket; take `LocalS3` itself to stop or kill one.
    """
    with shared_server(_servers_folder, "seaweedfs", _seaweedfs, _answers) as facts:
        yield _config(facts, SHARED_BUCKET)


@pytest.fixture(scope="session")
def moto(_servers_folder: Path) -> Iterator[BucketConfig]:
    """moto's S3, shared by all workers."""
    with shared_server(_servers_folder, "moto", _moto, _answers) as facts:
        yield _config(facts, SHARED_BUCKET)


@pytest.fixture(params=["seaweedfs", *variants("moto")])
def store(request: pytest.FixtureRequest) -> BucketConfig:
    """Each of the supported stores, in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def bucket(store: BucketConfig) -> Bucket:
    """The bucket that all tests share, on each of the stores; use fresh names in it."""
    return Bucket(store)


@pytest.fixture
def own_bucket(store: BucketConfig, fresh: Fresh) -> Iterator[Bucket]:
    """A bucket for this test alone, on each of the stores: for tests of whole buckets."""
    config = BucketConfig(
        endpoint=store.endpoint,
        bucket=fresh("own"),
        access_key=store.access_key,
        secret_key=store.secret_key,
    )
    make_bucket(config)
    yield Bucket(config)
    raw = boto_client(config)
    _empty(raw, config.bucket)
    raw.delete_bucket(Bucket=config.bucket)


def _empty(raw: S3Client, bucket: str) -> None:
    for upload in raw.list_multipart_uploads(Bucket=bucket).get("Uploads", []):
        raw.abort_multipart_upload(
            Bucket=bucket, Key=upload.get("Key", ""), UploadId=upload.get("UploadId", "")
        )
    listed = raw.list_object_versions(Bucket=bucket)
    for each in [*listed.get("Versions", []), *listed.get("DeleteMarkers", [])]:
        raw.delete_object(
            Bucket=bucket, Key=each.get("Key", ""), VersionId=each.get("VersionId", "")
        )
