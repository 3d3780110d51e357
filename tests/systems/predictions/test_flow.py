"""From a photo to its picture, over the real bucket and the real cog."""

from __future__ import annotations

from tests.support import clause, wait_until
from tests.systems.predictions.site import Site


@clause("P-13", "P-14", "P-17", "P-20")
async def test_p13_a_photo_becomes_one_picture_by_one_prediction(site: Site) -> None:
    photo = site.photo()
    await site.flow.submit(photo)
    await wait_until(lambda: _none_open(site), "the marker to be removed")
    assert await site.state(photo) == "delivered"
    assert len(site.paid(photo)) == 1
    (picture,) = site.chat.pictures(photo.chat_id)
    assert picture.startswith(b"\x89PNG")
    assert site.chat.texts(photo.chat_id) == []


async def _none_open(site: Site) -> bool:
    return await site.open_tasks() == []
