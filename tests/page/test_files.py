"""O-4: the files of the page: their policy, and what a first visit transfers."""

from __future__ import annotations

import httpx

from jobwire.client import Queue
from tests.page.app import QUEUE
from tests.page.site import PageSite, loaded_files
from tests.page.test_vendor import FIRST_VISIT_BYTES
from tests.support import clause
from tests.support.browser import Browser


@clause("O-4")
def test_o04_every_file_has_the_strict_policy(site: PageSite) -> None:
    with httpx.Client(base_url=site.url, trust_env=False) as client:
        for path in ("/", "/js/app.js", "/style/page.css", "/vendor/lit-html/lit-html.js"):
            answer = client.get(path)
            policy = answer.headers["content-security-policy"]
            assert answer.status_code == 200
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy


@clause("O-4")
def test_o04_a_first_visit_transfers_less_than_50_kb(
    site: PageSite, films: Queue, browser: Browser
) -> None:
    """The files of a screen, as a browser without a cache reads them; plots are not counted."""
    job_id = site.client.submit("odd", {"text": "small"}).job_id
    site.ended(job_id)
    of_queue = films.add("odd", {"text": "small"}).id
    films.wait(of_queue, timeout_s=30)
    sizes: dict[str, int] = {}
    for route, selector, text in (
        ("#/", "main", "Just ended"),
        ("#/jobs", "table.jobs", "odd"),
        (f"#/jobs/streams/{job_id}", ".events", "handlers.own"),
        (f"#/jobs?wire=bullmq&queue={QUEUE}", "main", "Just ended"),
        (f"#/jobs?wire=bullmq&queue={QUEUE}&state=completed", "table.jobs", "odd"),
        (f"#/jobs/bullmq/{QUEUE}/{of_queue}", ".events", "completed"),
    ):
        with browser.page() as page:
            page.open(f"{site.url}/{route}")
            page.until_text(selector, text)
            files = loaded_files(page)
        assert "/js/app.js" in files
        assert len([name for name in files if "/screens/" in name]) == 2, "its own, and the list"
        sizes[route] = sum(files.values())
    assert max(sizes.values()) < FIRST_VISIT_BYTES, sizes
