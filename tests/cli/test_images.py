"""Images as programs: API and upload gateway as separate programs, and the commands that use
them."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import httpx
import pytest

from jobwire.local import LocalValkey, free_port
from jobwire.objects import BucketConfig
from tests.cli.runner import clean_env, jobwire
from tests.cli.test_subsets import s3_env
from tests.handlers.photo.images import jpeg, photograph
from tests.support import Program, clause
from tests.systems.images.site import portrait

# Not on the site that other tests share: it reads results too.
PREFIX = "{apart}:"
pytestmark = pytest.mark.keeps(f"{PREFIX}image:result*")


class Apart:
    """`jobwire images api` and `jobwire images gateway`, with the keys of `jobwire images keys`."""

    def __init__(self, folder: Path, valkey: LocalValkey, bucket: BucketConfig) -> None:
        self.folder = folder
        made = jobwire("images", "keys", "keys", cwd=folder)
        assert made.returncode == 0, made.stderr
        self.ports = {"api": free_port(), "gateway": free_port()}
        self._env = {
            **s3_env(bucket),
            "JOBWIRE_VALKEY_URL": valkey.url,
            "JOBWIRE_IMAGES_KEY_PREFIX": PREFIX,
            "JOBWIRE_IMAGES_DETECT": "none",
            "JOBWIRE_IMAGES_WORKERS": "1",
            "JOBWIRE_IMAGES_PORT": str(self.ports["gateway"]),
        }
        self.api = self.start("api", JOBWIRE_IMAGES_TOKEN_PRIVATE_KEY="keys/token-private.pem")
        self.gateway = self.start_gateway()
        self.url = f"http://127.0.0.1:{self.ports['api']}"

    def start(self, side: str, *arguments: str, **variables: str) -> Program:
        hidden = {name: "" for name in os.environ if name not in clean_env()}
        # Folders of their own: they share no file.
        variables["JOBWIRE_DATA_DIR"] = str(self.folder / side)
        port = ["--port", str(self.ports[side])]
        command = [sys.executable, "-m", "jobwire", "images", side, *port, *arguments]
        env = {**hidden, **self._env, **variables}
        return Program(command=command, cwd=self.folder, env=env)

    def start_gateway(self) -> Program:
        """With the public key only, on every address, without API keys."""
        return self.start(
            "gateway",
            "--host",
            "0.0.0.0",
            JOBWIRE_IMAGES_TOKEN_PUBLIC_KEY="keys/token-public.pem",
            JOBWIRE_GATEWAY_CORS_ORIGINS="https://app.example.com",
        )

    def close(self) -> None:
        for program in (self.api, self.gateway):
            program.close()


PRIVATE, PUBLIC = "images.token_private_key", "images.token_public_key"
KEY_TEXT = "MC4CAQAwBQYDK2VwBCIEIJ4Ezz9P0uJ6Jmu8vRhXTOfQbJ7pKMmN2Qd5VnpkG0aB"


@clause("I-10", "O-2")
@pytest.mark.parametrize(
    ("side", "given", "fault"),
    [
        (
            "api",
            "none.pem",
            f"{PRIVATE}: cannot read the file none.pem (No such file or directory)",
        ),
        ("api", ".", f"{PRIVATE}: cannot read the file . (Is a directory)"),
        ("api", "other.pem", f"{PRIVATE}: the file other.pem is not an Ed25519 private key"),
        ("api", KEY_TEXT, f"{PRIVATE}: lacks the line -----BEGIN"),
        ("gateway", "none.pem", f"{PUBLIC}: cannot read the file none.pem (No such file"),
        ("gateway", "other.pem", f"{PUBLIC}: the file other.pem is not an Ed25519 public key"),
    ],
)
def test_i10_a_key_that_cannot_be_used_is_one_line_with_its_file_and_setting(
    tmp_path: Path,
    valkey: LocalValkey,
    seaweedfs: BucketConfig,
    side: str,
    given: str,
    fault: str,
) -> None:
    (tmp_path / "other.pem").write_bytes(b"not a key")
    env = {
        **s3_env(seaweedfs),
        "JOBWIRE_VALKEY_URL": valkey.url,
        "JOBWIRE_IMAGES_KEY_PREFIX": PREFIX,
        "JOBWIRE_IMAGES_DETECT": "none",
        "JOBWIRE_IMAGES_TOKEN_PRIVATE_KEY"
        if side == "api"
        else "JOBWIRE_IMAGES_TOKEN_PUBLIC_KEY": given,
    }
    done = jobwire("images", side, "--port", "0", cwd=tmp_path, env=env)
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("jobwire:")]
    assert line.startswith(f"jobwire: {fault}")
    assert KEY_TEXT not in done.stderr


@clause("I-10", "I-20", "I-32", "I-35")
def test_i32_api_and_upload_gateway_are_separate_programs(
    tmp_path: Path, valkey: LocalValkey, seaweedfs: BucketConfig
) -> None:
    (tmp_path / "photo.jpg").write_bytes(portrait())
    (tmp_path / "broken.jpg").write_bytes(jpeg(photograph())[:9000])
    site = Apart(tmp_path, valkey, seaweedfs)
    try:
        site.api.wait_for_line("images api on")
        site.gateway.wait_for_line("images gateway on")
        site.gateway.wait_for_line("faces stay visible")
        env = {"JOBWIRE_URL": site.url}

        def run(*arguments: str) -> tuple[int, list[dict[str, object]], str]:
            done = jobwire("images", *arguments, cwd=tmp_path, env=env)
            return (
                done.returncode,
                [json.loads(line) for line in done.stdout.splitlines()],
                (done.stderr),
            )

        # A photo that is ready, one that fails, and one that is none.
        code, lines, errors = run("put", "photo.jpg", "broken.jpg", "--follow")
        assert code == 1, errors
        assert "DECODE_FAILED" in errors
        (ready,) = lines
        assert httpx.get(str(ready["url"]), trust_env=False).status_code == 200
        assert run("put", "keys/token-public.pem")[0] == 5
        assert run("put", "missing.jpg")[0] == 2
        code, (shown,), _ = run("get", str(ready["image_id"]))
        assert (code, shown["status"], shown["sha256"]) == (0, "ready", ready["sha256"])
        code, listed, _ = run("list", "--limit", "5")
        assert {image["status"] for image in listed} == {"ready", "failed"}
        assert run("delete", str(ready["image_id"]))[0] == 0
        assert run("get", str(ready["image_id"]))[0] == 4
        _pages_of_other_origins(site)
    finally:
        site.close()


def _pages_of_other_origins(site: Apart) -> None:
    """A configured page may upload from another origin; another one may not."""
    asked = {
        "access-control-request-method": "PUT",
        "access-control-request-headers": "authorization,content-type",
    }
    url = f"http://{socket.gethostname()}.example:1/v1/uploads/x"
    local = f"http://127.0.0.1:{site.ports['gateway']}/v1/uploads/x"
    for origin, allowed in (("https://app.example.com", True), ("https://evil.example", False)):
        headers = {"origin": origin, "host": url.split("/")[2], **asked}
        answer = httpx.options(local, headers=headers, trust_env=False)
        named = answer.headers.get("access-control-allow-origin")
        assert named == (origin if allowed else None)
