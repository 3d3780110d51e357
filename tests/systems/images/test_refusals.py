"""Refusals of the upload route with their answers; a correct upload works afterwards."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from jobwire.gateway.settings import GatewaySettings
from jobwire.local import LocalValkey
from jobwire.objects import BucketConfig
from jobwire.systems.images.tokens import read_private_key
from tests.handlers.photo.images import png, quarters
from tests.support import Plain, clause, wait_until_sync
from tests.systems.images.site import ImageSite, Json, plain_photo, raw_put


def claims_of(image: Json) -> dict[str, Any]:
    return jwt.decode(image["token"], options={"verify_signature": False})


def own_key(site: ImageSite) -> Ed25519PrivateKey:
    return read_private_key(str(site.folder / "images" / "token-private.pem"))


def unsigned(claims: dict[str, Any], algorithm: str) -> str:
    parts = [json.dumps(each).encode() for each in ({"alg": algorithm, "typ": "JWT"}, claims)]
    head = ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
    return f"{head}."


def signed(site: ImageSite, image: Json, **changes: Any) -> str:
    claims = {key: value for key, value in {**claims_of(image), **changes}.items() if value}
    return jwt.encode(claims, own_key(site), algorithm="EdDSA")


TOKENS: dict[str, Callable[[ImageSite, Json], str]] = {
    "garbage": lambda site, image: "garbage",
    "forged": lambda site, image: jwt.encode(
        claims_of(image), Ed25519PrivateKey.generate(), algorithm="EdDSA"
    ),
    "changed": lambda site, image: image["token"][:-8] + "AAAAAAAA",
    "expired": lambda site, image: signed(site, image, exp=int(time.time()) - 1),
    "without exp": lambda site, image: signed(site, image, exp=None),
    "without an algorithm": lambda site, image: unsigned(claims_of(image), "none"),
    "wrong algorithm": lambda site, image: jwt.encode(
        claims_of(image), "a secret that is long enough for HS256", algorithm="HS256"
    ),
    "another folder": lambda site, image: signed(site, image, storage_key="other/x.webp"),
    "another type": lambda site, image: signed(site, image, content_type="text/html"),
    "a path as id": lambda site, image: signed(site, image, image_id="../../etc/passwd"),
    "very long": lambda site, image: "x" * 5000,
}


@clause("I-10", "I-20", "I-32")
def test_i32_tokens_that_are_not_ours_are_refused(site: ImageSite, plain: Plain) -> None:
    image = site.announce()
    for name, make in TOKENS.items():
        answer = site.put({**image, "token": make(site, image)}, plain_photo())
        assert answer.status_code == 401, name
        assert answer.json()["code"] == "bad_upload_token", name
        assert answer.headers["www-authenticate"].startswith("Bearer"), name
    no_token = site.client.put(image["upload_url"], content=plain_photo())
    assert no_token.status_code == 401
    other = site.announce()
    answer = site.put({**image, "token": other["token"]}, plain_photo())
    assert (answer.status_code, answer.json()["code"]) == (403, "other_image")
    assert not plain.exists(f"image:upload:{image['image_id']}")
    assert site.put(image, plain_photo()).status_code == 202
    assert site.ended(image["image_id"])["status"] == "ready"


@clause("I-2", "I-20")
def test_i20_each_fault_of_a_body_has_its_status_and_releases_the_claim(
    site: ImageSite, plain: Plain
) -> None:
    image = site.announce()
    photo = plain_photo()
    claim = f"image:upload:{image['image_id']}"

    def refused(body: Any, status: int, code: str, **headers: str) -> None:
        answer = site.put(image, body, **headers)
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
        assert not plain.exists(claim), "the claim is released"
        assert not plain.exists(f"{claim}:owner")

    def in_parts() -> Iterator[bytes]:
        yield photo

    refused(in_parts(), 411, "length_required")
    refused(b"", 422, "not_an_image")
    refused(b"plain text, no image at all", 422, "not_an_image")
    refused(b"\xff\xd8", 422, "not_an_image")
    refused(png(quarters()), 415, "unsupported_media_type")
    refused(photo, 415, "unsupported_media_type", **{"content-type": "image/png"})
    refused(b"\xff\xd8\xff" + b"x" * (10 << 20), 413, "too_large")
    # A token for less than the gateway allows.
    small = {**image, "token": signed(site, image, max_size=100)}
    answer = site.put(small, photo)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert site.put(image, photo).status_code == 202
    answer = site.put(image, photo)
    assert (answer.status_code, answer.json()["code"]) == (409, "already_uploaded")
    site.ended(image["image_id"])
    answer = site.put(image, photo)
    assert (answer.status_code, answer.json()["code"]) == (409, "already_uploaded")
    assert plain.get(claim) == "claimed", "a claim that was accepted is kept"


@clause("I-2")
def test_i02_the_claim_of_a_disconnected_client_is_released(site: ImageSite, plain: Plain) -> None:
    image = site.announce()
    claim = f"image:upload:{image['image_id']}"
    photo = plain_photo()
    with raw_put(image, len(photo), photo[:500]):
        wait_until_sync(lambda: plain.exists(claim), "the claim")
        # Another upload of the same image meanwhile.
        assert site.put(image, photo).status_code == 409
    wait_until_sync(lambda: not plain.exists(claim), "its release")
    assert site.put(image, photo).status_code == 202
    assert site.ended(image["image_id"])["status"] == "ready"


@clause("I-2", "I-20")
def test_i20_more_bytes_than_announced_are_not_part_of_the_photo(site: ImageSite) -> None:
    image = site.announce()
    photo = plain_photo()
    with raw_put(image, len(photo), photo + b"GARBAGE" * 10) as opened:
        assert opened.recv(4096).startswith(b"HTTP/1.1 202")
    assert site.ended(image["image_id"])["status"] == "ready"


@clause("I-2", "I-20", "I-21")
def test_i20_a_stalled_or_huge_body_is_refused_and_its_claim_released(
    valkey: LocalValkey, images_bucket: BucketConfig, plain: Plain, tmp_path: Path
) -> None:
    gateway = GatewaySettings(body_timeout=timedelta(seconds=1))
    with ImageSite(
        valkey.url, images_bucket, tmp_path, gateway=gateway, key_prefix="{slow}:"
    ) as site:
        image = site.announce()
        claim = f"{{slow}}:image:upload:{image['image_id']}"
        photo = plain_photo()
        with raw_put(image, len(photo), photo[:500]) as opened:
            wait_until_sync(lambda: plain.exists(claim), "the claim")
            assert opened.recv(4096).startswith(b"HTTP/1.1 408")
        wait_until_sync(lambda: not plain.exists(claim), "its release")
        # Refused by its length, before it is read.
        with raw_put(image, 64 << 20, photo) as opened:
            assert opened.recv(4096).startswith(b"HTTP/1.1 413")
        assert not plain.exists(claim)
        assert [file.name for file in site.spool.iterdir()] == ["spool.lock"]
        assert site.put(image, photo).status_code == 202
        assert site.ended(image["image_id"])["status"] == "ready"
    plain.delete("{slow}:image:result")


@clause("I-10")
def test_i10_an_announcement_is_checked(site: ImageSite) -> None:
    answer = site.client.post(
        "/v1/images", json={"content_type": "image/jpeg", "size": (10 << 20) + 1}
    )
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    for body in (
        {"content_type": "image/gif"},
        {"content_type": "image/jpeg", "size": 0},
        {"content_type": "image/jpeg", "filename": "a\nb"},
        {"content_type": "image/jpeg", "storage_key": "x"},
        {},
    ):
        assert site.client.post("/v1/images", json=body).status_code == 422, body
    image = site.announce(size=10 << 20)
    claims = claims_of(image)
    assert set(claims) == {*("image_id", "storage_key", "content_type", "max_size", "exp", "jti")}
    assert jwt.get_unverified_header(image["token"])["alg"] == "EdDSA"
    assert claims["storage_key"] == f"images/{image['image_id']}.webp"
    assert claims["max_size"] == 10 << 20
    assert 0 < claims["exp"] - time.time() <= 15 * 60
