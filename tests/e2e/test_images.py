"""Part 4 of the messaging plan on a whole installation: success, failure, duplicate, recovery.

One test for each installation, since an installation takes long to start.
"""

from __future__ import annotations

from tests.e2e.endpoints import Endpoints
from tests.e2e.flows import Flow, check_events, small_photo
from tests.support import clause
from tests.systems.images.site import portrait


@clause("I-2", "I-6", "I-12", "I-30", "O-8")
def test_o8_images_work_on_a_whole_installation(site: Endpoints) -> None:
    with site.client() as http, site.server() as server:
        flow = Flow(site, http, server)
        _a_photo_is_published_and_its_progress_seen(flow)
        _a_damaged_photo_fails_with_its_code(flow)
        _a_photo_is_uploaded_once(flow)
        if site.restart_gateway is not None:
            _accepted_photos_survive_a_killed_gateway(flow)


def _a_photo_is_published_and_its_progress_seen(flow: Flow) -> None:
    image_id, events = flow.watched(portrait())
    check_events(events, "ready")
    flow.check_ready(image_id)


def _a_damaged_photo_fails_with_its_code(flow: Flow) -> None:
    image_id, events = flow.watched(portrait()[:9000])
    check_events(events, "failed")
    flow.check_failed(image_id, "DECODE_FAILED")


def _a_photo_is_uploaded_once(flow: Flow) -> None:
    image = flow.announce()
    assert flow.put_twice(image, small_photo()) == [202, 409]
    flow.check_ready(image["image_id"])
    assert flow.put(image, small_photo()).status_code == 409


def _accepted_photos_survive_a_killed_gateway(flow: Flow) -> None:
    restart_gateway = flow.endpoints.restart_gateway
    assert restart_gateway is not None
    image_ids = [flow.upload(portrait()) for _ in range(4)]
    restart_gateway()
    for image_id in image_ids:
        flow.check_ready(image_id)
