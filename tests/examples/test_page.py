"""The example page in a real browser: live events, restarts, the end of the stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from jobwire import Client
from jobwire.gateway.auth import new_key
from tests.examples.page_app import GATE
from tests.examples.server import Site
from tests.fleet.runner import Fleet
from tests.support import clause, wait_until_sync
from tests.support.browser import PHONE, Browser, Message, Page, Request

WORKER: Final = "tests.examples.page_app:app"
# Only the EventSource itself knows whether it is closed.
KEEP_SOURCES: Final = """
  window.sources = [];
  window.EventSource = class extends EventSource {
    constructor(...given) { super(...given); window.sources.push(this); }
  };
"""
REFUSED: Final = """new Promise((resolve) => {
  const source = new EventSource("/v1/jobs/%s/events?token=bad");
  source.onerror = () => resolve(source.readyState);
})"""
CLOSED: Final = 2


class Counting:
    """The example's app with a gateway that needs keys; the test controls its worker."""

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
        """Let the worker count up to this number."""
        self._gate.write_text("\n" * count)

    def stop(self) -> None:
        """Let the job fail."""
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
    bodies = [json.loads(message.data) for message in messages if message.event == "progress"]
    return [body["data"]["message"] for body in bodies]


def _until_closed(page: Page) -> None:
    wait_until_sync(
        lambda: page.run("window.sources.map((each) => each.readyState)") == [CLOSED],
        "the browser to close the stream",
    )


def _reconnection(request: Request) -> tuple[int | None, str | None]:
    """The status and the Last-Event-ID. The browser reports headers with a delay."""
    return request.status, request.headers.get("last-event-id")


@clause("J-15", "O-6")
def test_j15_a_page_shows_live_events_over_restarts(counting: Counting, browser: Browser) -> None:
    """The gateway is killed, then the page's server, both while the job reports progress: the page
    receives each event once and in order, and closes the stream at the end."""
    site = counting.site
    counting.let(count=1)
    with browser.page(may_complain=True) as page:
        page.call("Page.addScriptToEvaluateOnNewDocument", source=KEEP_SOURCES)
        page.open(site.url)
        page.click("#go")
        page.until_text("#out", "at 1")
        assert page.run("bar.value") == 20, "progress is shown at once"

        counting.kill_gateway()
        counting.let(count=2)  # while no gateway serves the stream
        counting.start_gateway()
        page.until_text("#out", "at 2")
        assert len(_watched(page)) == 1, "the page has not reconnected"

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
            # Requests without a response may have no headers.
            lambda: (
                {_reconnection(each) for each in _watched(page)[1:] if each.status}
                == {(200, second)}
            ),
            "it to resume after the second event",
        )


@clause("J-15", "O-6")
def test_j15_a_browser_with_a_stream_token_resumes_and_gets_204_at_the_end(
    counting: Counting, browser: Browser
) -> None:
    """The browser connects to the gateway with a token, and its script never closes the stream. An
    EventSource reconnects whenever a stream ends; 204 after the last event stops it."""
    counting.let(count=0)
    with Client(counting.fleet.url, api_key=counting.key) as jobs:
        job = jobs.submit("count", {"to": 3})
    with browser.page(may_complain=True) as page:
        page.call("Page.setBypassCSP", enabled=True)  # /livez is no page
        page.call("Page.addScriptToEvaluateOnNewDocument", source=KEEP_SOURCES)
        page.open(f"{counting.fleet.url}/livez")
        token = page.run(
            f"""fetch("/v1/stream-tokens", {{
              method: "POST",
              headers: {{
                "Authorization": "Bearer {counting.key}", "Content-Type": "application/json"
              }},
              body: JSON.stringify({{ path: "/v1/jobs/{job.job_id}/events" }}),
            }}).then((answer) => answer.json())"""
        )
        assert page.run(REFUSED % job.job_id) == CLOSED, "a wrong token stops the EventSource"
        page.run("window.sources.length = 0")
        page.run(f"new EventSource({json.dumps(token['url'])}) && null")
        counting.let(count=1)
        wait_until_sync(lambda: _counted(page.messages) == ["at 1"])
        counting.kill_gateway()
        counting.let(count=2)
        counting.start_gateway()
        wait_until_sync(lambda: _counted(page.messages) == ["at 1", "at 2"], "it to resume")
        counting.let(count=3)
        _until_closed(page)

        events = [message for message in page.messages if message.event not in ("hello", "gap")]
        assert [message.event for message in events] == [
            *("queued", "running", *["progress"] * 3, "done")
        ]
        wait_until_sync(
            lambda: _reconnection(_watched(page)[-1]) == (204, events[-1].id), "the response 204"
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
        assert page.run(fits), "no horizontal scrolling, and a large button"
