"""O-9: the API as a page, from the OpenAPI document, with nothing from elsewhere."""

from __future__ import annotations

from tests.support import clause
from tests.support.browser import Browser
from tests.support.jobs_http import ServedJobs


@clause("O-9")
def test_o9_a_request_can_be_sent_from_the_page(served: ServedJobs, browser: Browser) -> None:
    with browser.page() as page:
        page.open(f"{served.url}/docs")
        page.until_text("main", "Submit a job")
        assert page.text("main h2") == "jobs"
        page.click('[id="post/v1/jobs"] summary')
        page.until_text('[id="post/v1/jobs"] .body', "invalid_payload")
        page.click('[id="post/v1/jobs"] button')
        page.until_text('[id="post/v1/jobs"]', '"status": "queued"')
        # The payload is returned as it was sent, white space included; it is indented once.
        assert '"payload": {\n    "prompt": "' in page.text('[id="post/v1/jobs"]')


@clause("O-9")
def test_o9_the_page_loads_nothing_from_elsewhere(served: ServedJobs) -> None:
    moved = served.client.get("/docs")
    assert (moved.status_code, moved.headers["location"]) == (308, "docs/")
    for name in ("", "api.js", "api.css"):
        answer = served.client.get(f"/docs/{name}")
        assert answer.status_code == 200
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        assert "//" not in answer.text.replace("// ", "").replace("http://www.w3.org", ""), name
