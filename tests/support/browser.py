"""A real browser for tests of pages: the fixture `browser`.

    def test_the_page_greets(browser: Browser) -> None:
        with browser.page() as page:
            page.open(url)
            page.click("#go")
            page.until_text("#out", "hello")

Chromium is started once for each parallel worker, with the first test that uses it; each page
has a profile of its own. A page with errors (in its script, on its console, a missing
resource) fails its test, unless the test allows it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.devtools import DevTools, DocumentLeft, Json
from tests.support.wait import DEADLINE_S, wait_until_sync

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
DESKTOP: Final = (1280, 800)
PHONE: Final = (390, 844)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Chromium, one for each parallel worker."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("chromium is not installed (Debian: apt-get install chromium)")
    devtools = DevTools(program, tmp_path_factory.mktemp("chromium"))
    yield Browser(devtools)
    devtools.close()


class Browser:
    """Opens pages."""

    def __init__(self, devtools: DevTools) -> None:
        self._devtools = devtools

    @contextlib.contextmanager
    def page(
        self, size: tuple[int, int] = DESKTOP, *, may_complain: bool = False
    ) -> Generator[Page]:
        """A page in a profile of its own, closed at the end."""
        profile = self._devtools.call("Target.createBrowserContext")["browserContextId"]
        try:
            target = self._devtools.call(
                "Target.createTarget", url="about:blank", browserContextId=profile
            )["targetId"]
            page = Page(self._devtools, target, size)
            yield page
            assert may_complain or page.complaints == []
        finally:
            self._devtools.call("Target.disposeBrowserContext", browserContextId=profile)


@dataclass(slots=True)
class Request:
    """A request of the page; `status` is set when its response has begun."""

    method: str = ""
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    status: int | None = None

    def heard(self, headers: dict[str, str]) -> None:
        self.headers.update({name.lower(): value for name, value in headers.items()})


@dataclass(frozen=True, slots=True)
class Message:
    """One message that an EventSource of the page received."""

    id: str
    event: str
    data: str


@dataclass(slots=True)
class _PageLog:
    requests: dict[str, Request] = field(default_factory=dict[str, Request])
    messages: list[Message] = field(default_factory=list[Message])
    complaints: list[str] = field(default_factory=list[str])

    def request(self, number: str) -> Request:
        return self.requests.setdefault(number, Request())


class Page:
    """One tab, with a record of its requests, messages and errors."""

    def __init__(self, devtools: DevTools, target: str, size: tuple[int, int]) -> None:
        self._devtools = devtools
        attached = devtools.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session: str = attached["sessionId"]
        self._log = _PageLog()
        self._loaded = threading.Event()
        devtools.listen(self._session, self._take)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(size)

    def call(self, method: str, **params: object) -> Json:
        """Call any method of the DevTools protocol."""
        return self._devtools.call(method, self._session, **params)

    # ── user actions ─────────────────────────────────────────────────────────────────────────────

    def open(self, url: str) -> None:
        """Open a URL and wait until the page is loaded."""
        self._loaded.clear()
        answer = self.call("Page.navigate", url=url)
        assert "errorText" not in answer, f"{url}: {answer['errorText']}"
        assert self._loaded.wait(DEADLINE_S), f"{url} is not loaded"

    def click(self, selector: str) -> None:
        """Click the middle of the element, which must be visible and not covered.

        The page may move the element after its place was read. The click that then meets another
        one is kept from the page and repeated.
        """
        wait_until_sync(lambda: self._clicked(selector), f"a click on {selector}")

    def _clicked(self, selector: str) -> bool:
        place = self.run(
            f"""(() => {{
              const found = document.querySelector({json.dumps(selector)});
              found.scrollIntoView({{ block: "center" }});
              const box = found.getBoundingClientRect();
              const at = {{ x: box.x + box.width / 2, y: box.y + box.height / 2 }};
              const top = document.elementFromPoint(at.x, at.y);
              if (!found.contains(top)) return null;
              const guard = (event) => {{
                if (found.contains(event.target)) return;
                event.preventDefault();
                event.stopImmediatePropagation();
                window.clickMissed = true;
              }};
              const kinds = ["pointerdown", "mousedown", "pointerup", "mouseup", "click"];
              window.clickMissed = false;
              kinds.forEach((kind) => addEventListener(kind, guard, true));
              window.endClick = () =>
                kinds.forEach((kind) => removeEventListener(kind, guard, true));
              return at;
            }})()"""
        )
        assert place is not None, f"{selector} cannot be clicked: something lies over it"
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)
        # Behind a link there is another document, without them.
        try:
            return not self.run("(window.endClick?.(), window.clickMissed)")
        except DocumentLeft:
            return True

    def type(self, text: str) -> None:
        """Type into the focused element."""
        self.call("Input.insertText", text=text)

    def resize(self, size: tuple[int, int]) -> None:
        """Set the size of the screen."""
        width, height = size
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=size == PHONE,
        )

    # ── observations ─────────────────────────────────────────────────────────────────────────────

    def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        failed = answer.get("exceptionDetails")
        assert failed is None, f"{script}: {_error_text(failed)}"
        return answer["result"].get("value")

    def text(self, selector: str = "body") -> str:
        """The visible text of the element."""
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def until_text(self, selector: str, part: str) -> None:
        """Wait until the element has this text."""
        wait_until_sync(lambda: part in self.text(selector), f"{part!r} in {selector}")

    def screenshot(self, file: Path) -> None:
        """A screenshot as PNG."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    @property
    def requests(self) -> list[Request]:
        """All requests of the page, in order."""
        return list(self._log.requests.values())

    @property
    def messages(self) -> list[Message]:
        """All messages that its EventSources received, with or without a listener."""
        return list(self._log.messages)

    @property
    def complaints(self) -> list[str]:
        """Errors of its scripts, on its console, and of its requests."""
        return list(self._log.complaints)

    def _take(self, method: str, params: Json) -> None:
        log = self._log
        match method:
            case "Page.loadEventFired":
                self._loaded.set()
            case "Network.requestWillBeSent":
                sent: Json = params["request"]
                request = log.request(params["requestId"])
                request.method, request.url = sent["method"], sent["url"]
                request.heard(sent["headers"])
            case "Network.requestWillBeSentExtraInfo":
                # The headers as sent; this event may come before or after the one above.
                log.request(params["requestId"]).heard(params["headers"])
            case "Network.responseReceived":
                log.request(params["requestId"]).status = params["response"]["status"]
            case "Network.eventSourceMessageReceived":
                fields = (params["eventId"], params["eventName"], params["data"])
                log.messages.append(Message(*fields))
            case "Runtime.exceptionThrown":
                log.complaints.append(_error_text(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "assert"):
                parts = [str(each.get("value", each.get("description"))) for each in params["args"]]
                log.complaints.append(" ".join(parts))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                log.complaints.append(f"{params['entry']['text']} {params['entry'].get('url')}")
            case _:
                pass


def _error_text(failed: Json) -> str:
    thrown: Json = failed.get("exception", {})
    return str(thrown.get("description", failed["text"]))
