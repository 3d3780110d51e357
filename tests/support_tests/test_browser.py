"""The browser of the tests: user actions, and reports of errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import wait_until_sync
from tests.support.browser import PHONE, Browser
from tests.support.devtools import Json

PAGE = """<!doctype html><link rel="icon" href="data:,">
<meta name="viewport" content="width=device-width">
<input id="name"><button id="go">go</button><p id="out"></p>
<div id="lid" style="display: none; position: fixed; inset: 0">a lid</div>
<script>
  go.onclick = () => { out.textContent = `hello ${document.getElementById("name").value}`; };
</script>"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    file = tmp_path / "page.html"
    file.write_text(PAGE)
    return file.as_uri()


def test_a_page_is_clicked_read_and_captured(browser: Browser, url: str, tmp_path: Path) -> None:
    with browser.page(PHONE) as page:
        page.open(url)
        page.click("#name")
        page.type("you")
        page.click("#go")
        page.until_text("#out", "hello you")
        assert page.run("innerWidth") == PHONE[0]
        page.screenshot(tmp_path / "shown.png")
        assert (tmp_path / "shown.png").read_bytes().startswith(b"\x89PNG")
        page.run("lid.style.display = 'block'")
        with pytest.raises(AssertionError, match="something lies over it"):
            page.click("#go")


def test_a_click_on_an_element_that_moves_away_is_repeated(
    browser: Browser, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with browser.page() as page:
        page.open(url)
        page.run("go.addEventListener('click', () => { go.title += 'clicked'; })")
        other = """(() => {
          const above = document.createElement("div");
          above.style.height = "300px";
          above.onclick = above.onmousedown = () => { above.title = "hit"; };
          document.body.prepend(above);
        })()"""
        call, moves = page.call, iter([other])

        def call_later(method: str, **params: object) -> Json:
            if method == "Input.dispatchMouseEvent" and (script := next(moves, None)):
                call("Runtime.evaluate", expression=script)
            return call(method, **params)

        monkeypatch.setattr(page, "call", call_later)
        page.click("#go")
        page.until_text("#out", "hello")
        assert page.run("[go.title, document.body.firstElementChild.title]") == ["clicked", ""]


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("setTimeout(() => missing.call())", "missing is not defined"),
        ("console.error('oh', 'no')", "oh no"),
        ("document.body.appendChild(Object.assign(new Image(), {src: 'gone.png'}))", "gone.png"),
    ],
)
def test_a_page_with_errors_fails_its_test(
    browser: Browser, url: str, script: str, says: str
) -> None:
    with pytest.raises(AssertionError, match=says):
        _open_and_run(browser, url, script)
    with pytest.raises(AssertionError, match="boom"), browser.page() as page:
        page.run("(() => { throw new Error('boom') })()")


def _open_and_run(browser: Browser, url: str, script: str) -> None:
    with browser.page() as page:
        page.open(url)
        page.run(f"void ({script})")
        wait_until_sync(lambda: page.complaints)
