"""O-9: the HTTP API of the whole gateway is the one that is kept as a file."""

from __future__ import annotations

import json

from tests.contracts.openapi_document import FILE, as_text, differences, served
from tests.support import clause


@clause("O-9")
def test_o09_the_document_of_all_systems_is_the_one_that_is_kept() -> None:
    """A failure is a change of the API: `make openapi` writes the file anew, and its diff belongs
    to the commit that changes the API."""
    kept, document = json.loads(FILE.read_text(encoding="utf-8")), served()
    assert differences(kept, document) == [], "the API has changed; run `make openapi`"
    assert as_text(document) == FILE.read_text(encoding="utf-8"), "run `make openapi`"


def test_a_difference_is_named_by_its_place() -> None:
    before = {"paths": {"/a": {"get": {"tags": ["x"]}}, "/b": {}}}
    after = {"paths": {"/a": {"get": {"tags": ["y"]}}, "/c": {}}}
    assert differences(before, after) == ["/paths//a/get/tags", "/paths//b", "/paths//c"]
