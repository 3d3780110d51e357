"""One site for all tests of the page: a gateway without keys, one with keys, and a worker."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from jobwire import Client
from jobwire.gateway.auth import new_key
from jobwire.local import free_port
from tests.fleet.runner import Fleet
from tests.page.app import GATE, QUEUE
from tests.support import Program, wait_until_sync
from tests.support.browser import Page
from tests.support.thirdparty import axe

T = TypeVar("T")
_BOTH_THEMES: Final = bool(os.environ.get("PAGE_BOTH_THEMES"))
_KEYS: Final = {
    "ops": {"scopes": ["admin"]},
    "reader": {"scopes": ["read"]},
    "acme": {"scopes": ["read", "submit"], "tenant": "acme"},
}
# The API and plots are not files of a first visit. A file from the cache has no bytes.
_FILES: Final = """Object.fromEntries(
  [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
    .map((each) => [new URL(each.name).pathname, each.encodedBodySize])
    .filter(([path]) => !/^\\/(v1\\/|readyz|vendor\\/uplot)/.test(path)))"""
_CODES: Final = {"Enter": 13, "Escape": 27, " ": 32}


class PageSite:
    """`site.url` needs no key; `site.keyed_url` needs one of `site.keys`."""

    def __init__(self, folder: Path) -> None:
        self._gates = folder / "gates"
        self._gates.mkdir()
        self.fleet = Fleet(folder)
        self.url = self.fleet.url
        self.keys: dict[str, str] = {}
        self.keyed_url = ""

    def start(self) -> None:
        self._gateway = self.fleet.start_gateway()
        self.fleet.start_worker("tests.page.app:app", **{GATE: str(self._gates)})
        self.client: Client = self.fleet.client()
        self.ended(self.client.submit("odd", {"text": "the first job"}).job_id)

    def start_keyed(self) -> None:
        """The gateway with keys, on the same server."""
        settings: list[dict[str, Any]] = []
        for name, options in _KEYS.items():
            self.keys[name], hashed = new_key()
            settings.append({"name": name, "hash": hashed, **options})
        port = free_port()
        self.keyed_url = f"http://127.0.0.1:{port}"
        env = {
            "JOBWIRE_GATEWAY_KEYS": json.dumps(settings),
            "JOBWIRE_QUEUES_TENANTS": f"{QUEUE}=acme",
        }
        program = self.fleet.start("gateway", "--port", str(port), env=env)
        program.wait_for_line("gateway on", timeout_s=60)

    def start_reader(self) -> Program:
        """A worker that gives up its jobs soon after SIGTERM."""
        env = {GATE: str(self._gates), "JOBWIRE_WORKER_DRAIN": "200ms"}
        return self.fleet.start_worker("tests.page.reader:app", **env)

    def let(self, gate: str) -> None:
        """Release the job that waits at this gate."""
        (self._gates / gate).touch()

    def kill_gateway(self) -> None:
        self._gateway.kill()

    def start_gateway(self) -> Program:
        self._gateway = self.fleet.start_gateway()
        return self._gateway

    def ended(self, job_id: str) -> str:
        """Wait until a job has ended; its status."""
        wait_until_sync(
            lambda: self.client.get(job_id).status in ("done", "error", "canceled"), "the end"
        )
        return self.client.get(job_id).status

    def failed_job(self, message: str, code: str = "broken", **payload: object) -> str:
        job = self.client.submit("break", {"message": message, "code": code, **payload})
        assert self.ended(job.job_id) == "error"
        return job.job_id


def press(page: Page, *keys: str) -> None:
    """Press keys, one after the other."""
    for key in keys:
        named = {"key": key, "windowsVirtualKeyCode": _CODES.get(key, ord(key[0].upper()))}
        text = {"Enter": "\r", "Escape": ""}.get(key, key)
        shown = {"text": text} if text else {}
        page.call("Input.dispatchKeyEvent", type="keyDown", **named, **shown)
        page.call("Input.dispatchKeyEvent", type="keyUp", **named)


def show(page: Page, url: str, route: str, text: str = "") -> None:
    """Open a route of the page, without loading it again, and wait for a text in it."""
    if page.run("location.origin") == url:
        page.run(f"location.hash = {json.dumps(route)}")
    else:
        page.open(f"{url}/{route}")
    if text:
        page.until_text("main", text)


def until(page: Page, condition: str, what: str) -> None:
    """Wait until an expression in the page is true."""
    wait_until_sync(lambda: page.run(f"!!({condition})"), what)


def click_text(page: Page, selector: str, text: str) -> None:
    """Click the element with this text, once it is there and enabled."""
    found = f"""[...document.querySelectorAll({json.dumps(selector)})].find((each) =>
      each.innerText.includes({json.dumps(text)}) && !each.disabled &&
      each.getClientRects().length)"""
    until(page, found, f"{text!r} in {selector}")
    page.run(
        f"document.querySelectorAll('[data-test]').forEach((each) => each.removeAttribute("
        f"'data-test')); ({found}).setAttribute('data-test', '')"
    )
    page.click("[data-test]")


def fill(page: Page, selector: str, text: str) -> None:
    """Replace the text of a field."""
    until(page, f"document.querySelector({json.dumps(selector)})", selector)
    page.run(f"document.querySelector({json.dumps(selector)}).select()")
    page.type(text)


def loaded_files(page: Page) -> dict[str, int]:
    """Path → transferred bytes of each file that the page has loaded, without plots."""
    return page.run(_FILES)


def again_in_the_other_theme(screens: Sequence[T]) -> Sequence[T]:
    """Screens whose colours are checked a second time: by `make chaos`, as a pass takes long."""
    return screens if _BOTH_THEMES else ()


def serious_violations(page: Page, rules: tuple[str, ...] = ()) -> list[str]:
    """Violations that axe reports as serious or critical."""
    if not page.run("!!window.axe"):
        page.run(axe().read_text() + ";true")
    only = {"runOnly": list(rules)} if rules else {}
    # Rows are alike: only the first ones are checked.
    where = json.dumps({"include": [["html"]], "exclude": [["tbody tr:nth-child(n+3)"]]})
    found: list[dict[str, Any]] = page.run(
        f"axe.run({where}, {json.dumps({'resultTypes': ['violations'], **only})})"
        ".then((result) => result.violations.map((each) => ({id: each.id, impact: each.impact,"
        " nodes: each.nodes.map((node) => node.html.slice(0, 160))})))"
    )
    return [
        f"{each['id']}: {each['nodes'][:3]}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
