"""The page of the examples in a real browser: live events, restarts in between, and the end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from jobwire import Client
from jobwire.gateway.auth import new_key
from tests.examples.page_app import GATE
from tests.examples.serving import Site
from tests.fleet.running import Fleet
from tests.support import clause, wait_until_sync
from tests.support.browser import PHONE, Browser, Message, Page, Request

WORKER: Final = "tests.examples.page_app:app"
# Whether an EventSource has given up can be asked of nobody but itself.
KEEP_SOURCES: Final = """
  window.sources = [];
  window.EventSource = class extends EventSource {
    constructor(...given) { super(...given); window.sources.push(this); }
  };
"""
REFUSED: Final = """new Promise((told) => {
  const source = new EventSource("/v1/jobs/%s/events?token=bad");
  source.onerror = () => told(source.readyState);
})"""
CLOSED: Final = 2


class Counting:
    """The example's app before a gateway that asks for keys; its worker counts when we say so."""

    def __init__(self, folder: Path) -> None:
        self._gate = folder / "gate"
        self._gate.touch()
        self.key, hashed = new_key()
        keys = [{"name": "app", "hash": hashed, "scopes": ["submit", "read"]}]
        self._keys = {
            "JOBWIRE_GATEWAY_KEYS": json.dumps(keys),
            "JOBWIRE_GATEWAY_TOKEN_SECRET": "the same for all gateways, always",
        }
        self.fleet = Fleet(folder)
        self.site = Site("examples.page.serve:app", {**self.fleet.env, "JOBWIRE_API_KEY": self.key})

    def start_gateway(self) -> None:
        self._gateway = self.fleet.start_gateway(**self._keys)

    def kill_gateway(self) -> None:
        self._gateway.kill()

    def start_worker(self) -> None:
        self.fleet.start_worker(WORKER, **{GATE: str(self._gate)})

    def let(self, *, count: int) -> None:
        """Let it have counted so far."""
        self._gate.write_text("\n" * count)

    def stop(self) -> None:
        """Let it fail."""
        self._gate.write_text("stop" + "\n" * 5)


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counting]:
    counting = Counting(tmp_path_factory.mktemp("counting"))
    with counting.fleet:
        counting.start_gateway()
        counting.start_worker()
        with counting.site:
            yield counting


def _watched(page: Page) -> list[Request]:
    return [request for request in page.requests if "/events" in request.url]


def _counted(messages: list[Message]) -> list[str]:
    said = [json.loads(message.data) for message in messages if message.event == "progress"]
    return [each["data"]["message"] for each in said]


def _until_closed(page: Page) -> None:
    wait_until_sync(
        lambda: page.run("window.sources.map((each) => each.readyState)") == [CLOSED],
        "the browser to let go of the events",
    )


def _came_back(request: Request) -> tuple[int | None, str | None]:
    """The answer, and after which event it asked. The browser tells of headers when it likes."""
    return request.status, request.headers.get("last-event-id")


@clause("J-15", "O-6")
def test_j15_a_page_shows_live_events_over_restarts_of_everything(
    counting: Counting, browser: Browser
) -> None:
    """The gateway is killed, then the page's own server, both while the job goes on counting: the
    page sees each event once and in order, and lets go at the end."""
    site = counting.site
    counting.let(count=1)
    with browser.page(may_complain=True) as page:
        page.call("Page.addScriptToEvaluateOnNewDocument", source=KEEP_SOURCES)
        page.open(site.url)
        page.click("#go")
        page.until_text("#out", "at 1")
        assert page.run("bar.value") == 20, "it has not counted on, and is shown at once"

        counting.kill_gateway()
        counting.let(count=2)  # said while nobody listens
        counting.start_gateway()
        page.until_text("#out", "at 2")
        assert len(_watched(page)) == 1, "until here the page has not noticed"

        site.close()
        counting.let(count=3)
        site.start()
        page.until_text("#out", "at 3")
        counting.let(count=5)
        page.until_text("#out", "at 5 done")
        _until_closed(page)

        assert [message.event for message in page.messages] == [
            *("queued", "running", *["progress"] * 5, "done")
        ]
        assert _counted(page.messages) == [f"at {number}" for number in range(1, 6)]
        assert "last-event-id" not in _watched(page)[0].headers
        second = [message.id for message in page.messages if message.event == "progress"][1]
        wait_until_sync(
            # Where nobody answered it may tell of no headers at all.
            lambda: (
                {_came_back(each) for each in _watched(page)[1:] if each.status} == {(200, second)}
            ),
            "it to have come back after the second",
        )


@clause("J-15", "O-6")
def test_j15_a_browser_with_a_stream_token_resumes_and_is_sent_home_at_the_end(
    counting: Counting, browser: Browser
) -> None:
    """No app in between: the browser watches the gateway itself, by a token, and its script never
    closes anything. An EventSource comes back whenever a stream ends, so whoever has seen the end
    must be told that there is no more."""
    counting.let(count=0)
    with Client(counting.fleet.url, api_key=counting.key) as jobs:
        job = jobs.submit("count", {"to": 3})
    with browser.page(may_complain=True) as page:
        page.call("Page.setBypassCSP", enabled=True)  # there is no page of ours on this origin
        page.call("Page.addScriptToEvaluateOnNewDocument", source=KEEP_SOURCES)
        page.open(f"{counting.fleet.url}/livez")
        asked = page.run(
            f"""fetch("/v1/stream-tokens", {{
              method: "POST",
              headers: {{
                "Authorization": "Bearer {counting.key}", "Content-Type": "application/json"
              }},
              body: JSON.stringify({{ path: "/v1/jobs/{job.job_id}/events" }}),
            }}).then((answer) => answer.json())"""
        )
        assert page.run(REFUSED % job.job_id) == CLOSED, "a wrong token is no reason to come back"
        page.run("window.sources.length = 0")
        page.run(f"new EventSource({json.dumps(asked['url'])}) && null")
        counting.let(count=1)
        wait_until_sync(lambda: _counted(page.messages) == ["at 1"])
        counting.kill_gateway()
        counting.let(count=2)
        counting.start_gateway()
        wait_until_sync(lambda: _counted(page.messages) == ["at 1", "at 2"], "it to come back")
        counting.let(count=3)
        _until_closed(page)

        events = [message for message in page.messages if message.event not in ("hello", "gap")]
        assert [message.event for message in events] == [
            *("queued", "running", *["progress"] * 3, "done")
        ]
        wait_until_sync(
            lambda: _came_back(_watched(page)[-1]) == (204, events[-1].id), "it to be sent home"
        )


def test_a_failure_is_shown_and_the_page_fits_a_phone(counting: Counting, browser: Browser) -> None:
    counting.stop()
    with browser.page(PHONE) as page:
        page.call("Page.addScriptToEvaluateOnNewDocument", source=KEEP_SOURCES)
        page.open(counting.site.url)
        page.click("#go")
        page.until_text("#out", "error")
        _until_closed(page)
        fits = "document.documentElement.scrollWidth <= innerWidth && go.offsetHeight >= 44"
        assert page.run(fits), "no scrolling sideways, and a button for a thumb"
