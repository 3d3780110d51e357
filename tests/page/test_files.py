"""O-4: the files of the page: their policy, and what a first visit transfers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import httpx

from jobwire import page
from jobwire.client import Queue
from tests.page.app import QUEUE
from tests.page.site import PageSite, loaded_files
from tests.page.test_vendor import FIRST_VISIT_BYTES
from tests.support import clause
from tests.support.browser import Browser
from tests.support.thirdparty import NODE


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


DOTTED = """
import { dotted } from "./json.js";
const shown = (text) => dotted(text).replaceAll("•", "*");
console.log(shown('{"password": "x", "a": "b", "n": {"api_key" : "s\\\\"t"}, "token": 5}'));
console.log(shown('{"secret":"cut of'));
const runs = ['"', '\\\\"', '"token'].map((each) => each.repeat(150000));
const hostile = ['"' + "token".repeat(200000), ...runs];
console.log(hostile.every((text) => dotted(text).length));
"""


@clause("O-15")
def test_o15_secrets_of_any_text_are_dotted_in_linear_time(tmp_path: Path) -> None:
    """Regression: 80 KB of a field that another program wrote held the page for half a second, and
    a megabyte for minutes."""
    static = Path(page.__file__).parent / "static"
    shutil.copy(static / "js" / "json.js", tmp_path / "json.js")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "dotted.js").write_text(DOTTED)
    done = subprocess.run(
        [str(NODE), "dotted.js"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    stars = "*" * 8
    assert done.stdout.splitlines() == [
        f'{{"password": "{stars}", "a": "b", "n": {{"api_key" : "{stars}"}}, "token": 5}}',
        f'{{"secret":"{stars}"',
        "true",
    ]
