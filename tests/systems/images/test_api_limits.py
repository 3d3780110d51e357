"""What `api/images.py` writes again is what the wire has; and what a request may contain."""

from __future__ import annotations

from typing import get_args

import pytest

from jobwire.api import images as api
from jobwire.api.operation import Proof
from jobwire.systems.images import contract, follow, uploads
from tests.support import clause
from tests.systems.images.site import ImageSite


def test_the_words_and_limits_of_the_api_are_those_of_the_wire() -> None:
    assert get_args(api.ContentType) == api.CONTENT_TYPES == contract.CONTENT_TYPES
    assert api.PUBLISHED_TYPE == contract.PUBLISHED_TYPE
    assert set(api.STATUSES) == set(follow.ImageEvent)


def test_every_refusal_of_an_upload_is_in_the_api() -> None:
    access = api.UPLOAD.access
    assert isinstance(access, Proof)
    kinds = [*api.UPLOAD.problems, *access.problems]
    texts = {(kind.code, kind.status, kind.detail) for kind in kinds}
    codes = {(kind.code, kind.status) for kind in kinds}
    faults = {each for each in vars(uploads).values() if isinstance(each, uploads.UploadFault)}
    # A timeout has the text of every route.
    assert faults - texts == {uploads.TOO_SLOW}
    assert uploads.TOO_SLOW[:2] in codes
    assert (uploads.UploadBusy.code, uploads.UploadBusy.status) in codes


@clause("I-10")
@pytest.mark.parametrize("name", ["a\n", "\n", "a\tb.jpg", "\x7f", "x" * 256])
def test_i10_a_file_name_has_no_control_characters(site: ImageSite, name: str) -> None:
    new = {"content_type": "image/jpeg", "filename": name}
    answer = site.client.post("/v1/images", json=new)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert answer.json()["errors"][0]["pointer"] == "/filename"
