"""`client.images`: both clients, against a real site."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobwire.client import AsyncClient, Client, ImageFailed, Invalid, NoSuchImage
from tests.handlers.photo.images import jpeg, photograph
from tests.support import clause
from tests.systems.images.site import ImageSite, plain_photo


@clause("I-12")
def test_a_photo_is_put_followed_read_and_deleted(site: ImageSite, tmp_path: Path) -> None:
    file = tmp_path / "photo.jpg"
    file.write_bytes(plain_photo())
    with Client(site.url, api_key="") as client:
        image_id = client.images.put(file)
        states = list(client.images.events(image_id))
        assert (states[-1].event, states[-1].progress) == ("ready", 100)
        assert [state.progress for state in states] == sorted(state.progress for state in states)
        image = client.images.wait(image_id, timeout_s=30)
        assert (image.filename, image.width, image.height) == ("photo.jpg", 160, 120)
        page = client.images.list(limit=1)
        assert page.images[0].image_id == image_id
        assert page.max_size > 0
        client.images.delete(image_id)
        with pytest.raises(NoSuchImage):
            client.images.get(image_id)


async def test_a_photo_is_published_or_its_failure_raised(site: ImageSite) -> None:
    async with AsyncClient(site.url, api_key="") as client:
        image = await client.images.publish(plain_photo(), content_type="image/jpeg")
        assert image.status == "ready"
        image_id = await client.images.put(jpeg(photograph())[:9000], content_type="image/jpeg")
        states = [state async for state in client.images.events(image_id)]
        assert (states[-1].event, states[-1].progress) == ("failed", -1)
        with pytest.raises(ImageFailed) as failed:
            await client.images.wait(image_id, timeout_s=30)
        assert failed.value.code == "DECODE_FAILED"
        with pytest.raises(Invalid, match=r"^not a JPEG, PNG, WebP, AVIF or HEIC photo"):
            await client.images.put(Path(__file__))
