"""HEIC and AVIF through the whole pipeline, and without their decoder (I-43)."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobwire.local import LocalValkey
from jobwire.objects import BucketConfig
from jobwire.systems.images.settings import ImagesSettings
from tests.handlers.photo.heif import avif, grid, heic
from tests.handlers.photo.images import quarters, read
from tests.support import Plain, clause
from tests.systems.images.site import ImageSite, results


@clause("I-43")
@pytest.mark.parametrize(
    ("kind", "body", "size"),
    [
        ("heic", heic("turned"), (120, 160)),
        ("heic", grid(), (320, 240)),
        ("avif", avif(quarters()), (160, 120)),
    ],
)
def test_i43_a_photo_of_a_phone_is_published(
    site: ImageSite, plain: Plain, kind: str, body: bytes, size: tuple[int, int]
) -> None:
    if kind == "heic":
        pytest.importorskip("pi_heif")
    image_id = site.upload(body, f"image/{kind}")
    image = site.ended(image_id)
    assert (image["status"], image["width"], image["height"]) == ("ready", *size)
    assert image["content_type"] == "image/webp"
    published = site.client.get(f"/v1/images/{image_id}/picture").content
    assert read(published).shape[:2] == size[::-1]
    assert b"MARK-OF-THE-ARTIST" not in published
    (result,) = results(plain, image_id)
    assert (result["original_width"], result["original_height"]) == tuple(map(str, size))


@clause("I-43", "I-20")
def test_i43_a_photo_of_another_type_than_announced_gets_415(site: ImageSite) -> None:
    for announced, body in (
        ("image/avif", heic()),
        ("image/heic", avif(quarters())),
        ("image/jpeg", heic()),
    ):
        image = site.announce(announced)
        answer = site.put(image, body, **{"content-type": announced})
        assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")


@clause("I-43", "I-20", "I-2")
def test_i43_without_its_decoder_a_heic_is_refused_before_it_is_accepted(
    valkey: LocalValkey,
    images_bucket: BucketConfig,
    plain: Plain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The package is there and cannot be loaded: only a probe sees that."""
    broken = tmp_path / "packages" / "pi_heif"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('libheif.so: cannot open')")
    monkeypatch.syspath_prepend(broken.parent)  # workers have the same path
    with ImageSite(valkey.url, images_bucket, tmp_path / "site", key_prefix="{heic}:") as site:
        image = site.announce("image/heic")
        answer = site.put(image, heic(), **{"content-type": "image/heic"})
        assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
        assert "image/heic is not read here; send a JPEG" in answer.json()["detail"]
        assert not plain.exists(f"{{heic}}:image:upload:{image['image_id']}")
        assert [file.name for file in site.spool.iterdir()] == ["spool.lock"]
        assert site.get(image["image_id"])["status"] == "processing"
        other = site.upload(avif(quarters()), "image/avif")
        assert site.ended(other)["status"] == "ready"
    plain.delete("{heic}:image:result")


@clause("I-43", "O-3")
def test_i43_an_upload_may_have_50_mb() -> None:
    assert list(ImagesSettings(max_upload_mb=50).check()) == []
    assert list(ImagesSettings(max_upload_mb=51).check()) == [
        ("max_upload_mb", "must be at most 50")
    ]
    assert ImagesSettings().max_megapixels == 64
