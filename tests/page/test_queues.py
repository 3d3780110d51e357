"""O-4, B-12: queues inside Jobs, in a real browser."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from jobwire.client import Queue
from jobwire.client.errors import NotFound
from jobwire.local import free_port
from tests.page.app import QUEUE
from tests.page.site import (
    PageSite,
    again_in_the_other_theme,
    click_text,
    fill,
    press,
    serious_violations,
    show,
    until,
)
from tests.support import Fresh, clause
from tests.support.browser import PHONE, Browser, Page
from tests.support.thirdparty import NODE, node_packages
from tests.support.wait import wait_until_sync

# One browser and one site for all tests of the page.
pytestmark = pytest.mark.xdist_group("page")
HOSTILE: Final = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"
NOT_HACKED: Final = "!window.hacked && !document.querySelector('#root img, #root script')"
ONE_QUEUE: Final = f"#/jobs?wire=bullmq&queue={QUEUE}"


def job_route(job_id: str, tab: str = "") -> str:
    return f"#/jobs/bullmq/{QUEUE}/{job_id}{f'?tab={tab}' if tab else ''}"


def failed_job(films: Queue, text: str) -> str:
    job = films.add("break", {"text": text})
    assert films.wait(job.id, timeout_s=30).state == "failed"
    return job.id


def pick(page: Page, job_id: str) -> None:
    """Select a row, once the list is shown."""
    box = f"[aria-label='Select {job_id}']"
    until(page, f"document.querySelector({json.dumps(box)})", f"the row of {job_id}")
    page.click(box)


def node_jobs(site: PageSite, word: str) -> dict[str, str]:
    """Let npm BullMQ add a flow, a scheduler and a job."""
    packages = node_packages()
    script = Path(__file__).with_name("producer.js")
    url = site.fleet.valkey.url.replace("valkey://", "redis://")
    command = [str(NODE), str(script), str(packages), url, QUEUE, word]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


# ── flows ────────────────────────────────────────────────────────────────────────────────────────


@clause("O-4", "B-12")
def test_o04_a_job_is_added_to_a_queue_and_followed_live(
    site: PageSite, films: Queue, browser: Browser, fresh: Fresh
) -> None:
    gate = fresh("gate")
    films.wait(films.add("odd", {"text": "the first"}).id, timeout_s=30)
    with browser.page() as page:
        page.open(f"{site.url}/#/jobs")
        click_text(page, "nav.seg a", "Queues")
        click_text(page, "table.queues a", QUEUE)
        page.until_text("main", "Just ended")
        press(page, "n")
        page.until_text("dialog", "Add a job")
        fill(page, "input[name=name]", "render")
        fill(page, "#payload", '{"gate": ')
        page.until_text("#fault", "Not JSON")
        big = 12345678901234567890
        fill(page, "#payload", f'{{"gate": "{gate}", "big": {big}, "api_key": "hush"}}')
        page.until_text("#fault", "JSON")
        fill(page, "input[name=attempts]", "3")
        click_text(page, "dialog footer button", "Add")

        page.until_text(".jobhead", "50 %")
        page.until_text(".jobhead", "half of it")
        page.until_text(".life", "Reporting")
        page.until_text(".jobhead", "attempt 1 of 3")
        click_text(page, ".jobtabs a", "Logs")
        page.until_text(".log", "frame 1 of 2")
        click_text(page, ".jobtabs a", "Wire")
        page.until_text(".job", ":lock")
        assert "hush" not in page.text()
        site.let(gate)
        # The keys are read again when the job has ended.
        page.until_text(".job", f"bull:{QUEUE}:completed")
        assert ":lock" not in page.text(".job")
        page.until_text(".jobhead", "Completed")
        page.until_text(".life", "Ended")
        click_text(page, ".jobtabs a", "Events")
        page.until_text(".events", "completed")
        names = page.run("[...document.querySelectorAll('.events .st')].map((e) => e.innerText)")
        assert [names.count(each) for each in ("added", "active", "completed")] == [1, 1, 1]
        click_text(page, ".jobtabs a", "Result")
        page.until_text("pre.json", "frames")
        click_text(page, ".jobtabs a", "Data")
        page.until_text("pre.json", str(big))
        assert "hush" not in page.text()
        click_text(page, "button", "Show secrets")
        page.until_text("pre.json", "hush")


@clause("O-4", "B-12")
def test_o04_jobs_are_retried_promoted_and_removed_in_bulk(
    site: PageSite, films: Queue, browser: Browser, fresh: Fresh
) -> None:
    word = fresh("word")
    failed = [failed_job(films, f"{word} {number}") for number in range(3)]
    late = [films.add(f"late-{word}", {}, {"delay": 3_600_000}).id for _ in range(2)]
    with browser.page() as page:
        page.open(f"{site.url}/{ONE_QUEUE}")
        click_text(page, ".states a", "failed")
        until(page, "location.hash.includes('state=failed')", "the view in the URL")
        page.until_text("table.jobs", f"{word} 2")
        for job_id in failed[:2]:
            pick(page, job_id)
        click_text(page, ".pick button", "Retry 2")
        page.until_text("dialog", "Retry 2 jobs?")
        click_text(page, "dialog button", "Retry 2")
        page.until_text("main", "2 jobs wait again.")
        for job_id in failed[:2]:
            films.wait(job_id, timeout_s=30)
        # Rows do not change under the pointer: the list is opened again.
        show(page, site.url, ONE_QUEUE, "Just ended")
        show(page, site.url, f"{ONE_QUEUE}&state=failed")
        click_text(page, ".tabhead button", "Retry all 3")
        page.until_text("dialog", "Retry 3 failed jobs?")
        click_text(page, "dialog button", "Leave them")
        until(page, "!document.querySelector('dialog')", "the question to close")

        pick(page, failed[0])
        click_text(page, ".pick button", "Remove 1")
        page.until_text("dialog", "Remove 1 job?")
        click_text(page, "dialog button", "Remove 1")
        page.until_text("main", "1 job removed.")
        assert films.status().counts["failed"] == 2

        click_text(page, ".states a", "delayed")
        page.until_text("table.jobs", f"late-{word}")
        page.until_text("table.jobs", " min")
        click_text(page, ".tabhead button", "Promote all 2")
        page.until_text("dialog", "Promote 2 delayed jobs?")
        click_text(page, "dialog button", "Promote 2")
        page.until_text("main", "2 jobs promoted.")
        for job_id in late:
            assert films.wait(job_id, timeout_s=30).state == "completed"
        page.until_text(".empty", "No delayed job.")

        # By a part of the name, by id, and with the number of scanned jobs.
        fill(page, "#filter", f"LATE-{word}"[:9])
        click_text(page, ".states a", "completed")
        page.until_text(".scan", "Looked at 2 of 2 jobs.")
        show(page, site.url, ONE_QUEUE, "Just ended")
        fill(page, "#filter", failed[1])
        page.until_text("table.jobs", word)
        fill(page, "#filter", "no such job")
        page.until_text(".empty", "with “no such job” in its name or id")


@clause("O-4")
@pytest.mark.parametrize(
    ("goes", "arrives"),
    [
        # The event of the new URL, which a busy browser delivers later, has not come yet.
        ("history.pushState(null, '', URL + '&state=completed')", "&state=completed&q=late"),
        ("location.hash = '#/workers'", "#/workers"),
    ],
    ids=["another state", "another screen"],
)
def test_o04_a_text_just_typed_goes_along_to_another_state_only(
    site: PageSite, films: Queue, browser: Browser, goes: str, arrives: str
) -> None:
    """The URL follows what is typed a moment later, when the reader may have gone on."""
    films.add("late", {})
    with browser.page() as page:
        page.open(f"{site.url}/{ONE_QUEUE}&state=delayed")
        until(page, "document.querySelector('#filter')", "the filter")
        page.run(
            f"""new Promise((done) => {{
              const URL = {json.dumps(ONE_QUEUE)};
              const field = document.querySelector("#filter");
              field.value = "late";
              field.dispatchEvent(new Event("input"));
              {goes};
              setTimeout(done, 500);
            }})"""
        )
        assert str(page.run("location.hash")).endswith(arrives)
        if "state" in arrives:
            page.until_text(".scan", "Looked at 1 of 1 job.")


@clause("O-4", "B-12")
def test_o04_a_queue_is_paused_resumed_and_its_job_retried(
    site: PageSite, films: Queue, browser: Browser, fresh: Fresh
) -> None:
    failed = failed_job(films, fresh("word"))
    with browser.page(may_complain=True) as page:  # a poll may meet the removed job
        page.open(f"{site.url}/{ONE_QUEUE}")
        click_text(page, "button", "Pause queue")
        page.until_text("dialog", f"Pause {QUEUE}?")
        click_text(page, "dialog button", "Pause queue")
        page.until_text(".notice", "This queue is paused.")
        assert films.status().paused
        show(page, site.url, job_route(failed, "result"), "RuntimeError")
        page.until_text("main", "Stack trace")
        assert "Traceback" in page.text("main pre:last-of-type") + page.text("details pre")
        click_text(page, ".jobhead button", "Retry")
        page.until_text(".jobhead", "Waiting")
        page.until_text(".notice", "The queue is paused.")
        show(page, site.url, "#/jobs?wire=bullmq", "Paused")
        page.click(f"[aria-label='Resume {QUEUE}']")
        until(page, f"document.querySelector(\"[aria-label='Pause {QUEUE}']\")", "the other button")
        films.wait(failed, timeout_s=30)
        show(page, site.url, job_route(failed, "events"), "retries-exhausted")
        page.until_text(".attempts", "Attempt 2")
        click_text(page, ".jobhead button", "Remove")
        page.until_text("dialog", "Remove this job?")
        click_text(page, "dialog button", "Remove job")
        until(page, f"location.hash === {json.dumps(ONE_QUEUE)}", "the queue")
        assert films.status().counts["failed"] == 0


@clause("O-4", "B-12", "B-9")
def test_o04_flows_and_schedulers_of_node_are_shown(
    site: PageSite, films: Queue, browser: Browser, fresh: Fresh
) -> None:
    word = fresh("word")
    made = node_jobs(site, word)
    custom = films.add("odd", {}, {"jobId": f"order-{word}", "delay": 3_600_000})
    assert films.wait(made["job"], timeout_s=30).state == "completed"
    with browser.page() as page:
        page.open(f"{site.url}/{job_route(made['job'])}")
        page.until_text(".jobhead", "Completed")
        page.until_text(".events", f"from node {word}")
        show(page, site.url, ONE_QUEUE, f"assemble-{word}")
        page.until_text(".tree", "waits for 1 of 2")
        page.until_text(".schedulers", made["scheduler"])
        page.until_text(".schedulers", "Europe/Berlin")
        click_text(page, ".tree a", f"later-{word}")
        page.until_text(".jobhead", "Delayed")
        page.until_text(".jobhead", "child of")
        click_text(page, ".jobtabs a", "Flow")
        page.until_text(".tree", "and 1 other child")
        click_text(page, ".tree a", f"assemble-{word}")
        page.until_text(".jobhead", "Waiting for children")

        # Find by id, from anywhere. A new queue is found by the gateway's scan.
        known = site.client.bullmq_queues
        wait_until_sync(lambda: QUEUE in {each.name for each in known()}, "the scan for queues")
        show(page, site.url, "#/workers", "Backends")
        press(page, "/")
        page.type(custom.id)
        press(page, "Enter")
        until(page, f"location.hash === {json.dumps(job_route(custom.id))}", "the job")

        show(page, site.url, ONE_QUEUE, made["scheduler"])
        page.click(f"[aria-label='Remove {made['scheduler']}']")
        page.until_text("dialog", f"Remove the scheduler {made['scheduler']}?")
        click_text(page, "dialog button", "Remove scheduler")
        page.until_text("main", f"Scheduler {made['scheduler']} removed.")
        assert films.schedulers().total == 0


@clause("O-4", "O-11", "B-12")
def test_o04_a_paused_queue_and_a_new_one_are_shown_at_once(
    site: PageSite, films: Queue, browser: Browser, fresh: Fresh
) -> None:
    films.wait(films.add("odd", {}).id, timeout_s=30)  # a queue exists from its first job on
    films.pause()
    name = fresh("queue")
    new = site.client.queue(name)
    try:
        with browser.page() as page:
            page.open(f"{site.url}/#/workers")
            page.until_text("main", "Backends")
            films.add("odd", {})
            job = new.add("odd", {}, {"jobId": f"order-{name}"})
            # Found though no scan has seen its queue, which has no worker.
            press(page, "/")
            page.type(job.id)
            press(page, "Enter")
            until(page, f"location.hash.endsWith('/{job.id}')", "the job")
            page.until_text(".notice", "No worker takes jobs from")

            show(page, site.url, "#/", f"Queue {name}: no worker, 1 waiting, since")
            rows = "[...document.querySelectorAll('.systems tbody tr')].map((e) => e.innerText)"
            until(page, f"{rows}.some((e) => /^{QUEUE}\\b.*\\sPaused\\s/s.test(e))", "paused")
            # The badge counts what its screen lists: no jobs of queues.
            badge = "[...document.querySelectorAll('.nav a')].find((e) => e.hash === '#/jobs')"
            until(page, f"!{badge}.querySelector('b')", "no badge without open jobs")
            new.obliterate(force=True)
            page.until_text(".verdict", f"queue {QUEUE} is paused: 1 waiting.")
    finally:
        with contextlib.suppress(NotFound):
            new.obliterate(force=True)


# ── robustness ───────────────────────────────────────────────────────────────────────────────────


@clause("O-4", "B-12")
def test_o04_hostile_text_in_queues_stays_text(
    site: PageSite, films: Queue, browser: Browser, fresh: Fresh
) -> None:
    word = fresh("word")
    name = f"{HOSTILE[:60]}{word}"
    odd = films.add(name, {"text": HOSTILE, HOSTILE: [HOSTILE]})
    films.wait(odd.id, timeout_s=30)
    failed = failed_job(films, f"{HOSTILE} {word}")
    scheduler = HOSTILE.replace(":", "")[:60]
    films.set_scheduler(scheduler, {"pattern": "0 3 * * *"}, name=name, data={"x": HOSTILE})
    parent = films.add_flow(
        {"name": name, "children": [{"name": name, "opts": {"delay": 3_600_000}}]}
    )
    other = site.client.queue(HOSTILE.replace("/", "")[:60])
    other.add(name, {}, {"jobId": HOSTILE[:30]})
    with browser.page() as page:
        for route, shown in (
            ("#/jobs?wire=bullmq", "<img src"),
            (f"#/jobs?wire=bullmq&q={word}", QUEUE),
            (ONE_QUEUE, "<img src"),
            (f"{ONE_QUEUE}&state=completed", word),
            (f"{ONE_QUEUE}&state=failed", "onerror"),
            (f"{ONE_QUEUE}&q=%3Cimg%20src", word),
            (job_route(odd.id), "onerror"),
            (job_route(odd.id, "data"), "onerror"),
            (job_route(odd.id, "result"), "onerror"),
            (job_route(odd.id, "logs"), "onerror"),
            (job_route(odd.id, "wire"), "onerror"),
            (job_route(failed, "result"), "onerror"),
            (job_route(parent.id, "flow"), word),
        ):
            show(page, site.url, route, shown)
            assert page.run(NOT_HACKED), route
    other.obliterate()
    with browser.page(may_complain=True) as page:  # the browser complains about a 404
        page.open(f"{site.url}/#/jobs/bullmq/{QUEUE}/%3Cimg%20src%3Dx%3E")
        page.until_text("main", "No such job")
        show(page, site.url, "#/jobs?wire=bullmq&queue=%3Cimg%20src%3Dx%3E", "No such queue")
        assert page.run(NOT_HACKED)


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────


@clause("O-4", "B-18", "O-6")
def test_o04_buttons_of_a_queue_follow_the_scopes(
    keyed: PageSite, films: Queue, browser: Browser, fresh: Fresh
) -> None:
    failed = failed_job(films, fresh("word"))

    def signed_in(page: Page, name: str) -> None:
        script = f"sessionStorage.setItem('jobwire.key', {json.dumps(keyed.keys[name])})"
        page.call("Page.addScriptToEvaluateOnNewDocument", source=script)

    with browser.page() as page:
        signed_in(page, "acme")  # read and submit
        page.open(f"{keyed.keyed_url}/{ONE_QUEUE}&state=failed")
        page.until_text("table.jobs", "failed")
        text = page.text("main")
        assert "Pause queue" not in text
        assert "Retry all" not in text
        pick(page, failed)
        page.until_text(".pick", "Retry 1")
        show(page, keyed.keyed_url, job_route(failed, "events"), "retries-exhausted")
        assert any("/events?token=" in request.url for request in page.requests)
    with browser.page(may_complain=True) as page:
        signed_in(page, "reader")  # of another tenant
        page.open(f"{keyed.keyed_url}/#/jobs?wire=bullmq")
        page.until_text(".own", "default")
        show(page, keyed.keyed_url, ONE_QUEUE, "No such queue.")


@clause("O-4", "B-18")
def test_o04_look_shows_queues_without_buttons(
    site: PageSite, films: Queue, browser: Browser, fresh: Fresh
) -> None:
    word = fresh("word")
    failed = failed_job(films, word)
    films.add("odd", {}, {"delay": 3_600_000})
    port = free_port()
    url = site.fleet.valkey.url
    look = site.fleet.start("look", url, "--page", "--port", str(port))
    look.wait_for_line("read-only page on", timeout_s=60)
    before = films.status().counts
    with browser.page() as page:
        page.open(f"http://127.0.0.1:{port}/#/jobs")
        page.until_text("table.queues", QUEUE)
        until(page, "location.hash.includes('wire=bullmq')", "the queues as the only jobs")
        for route, shown in (
            (ONE_QUEUE, "Just ended"),
            (f"{ONE_QUEUE}&state=failed", word),
            (job_route(failed, "events"), "retries-exhausted"),
            (job_route(failed, "wire"), "HGETALL"),
        ):
            show(page, f"http://127.0.0.1:{port}", route, shown)
            buttons: list[str] = page.run(
                "[...document.querySelectorAll('.page button, .page input[type=checkbox]')]"
                ".map((each) => each.textContent.trim() || each.ariaLabel || each.type)"
            )
            acts = [each for each in buttons if not each.startswith("Copy")]
            assert set(acts) <= {"valkey-cli", "curl"}, route
        assert page.text(".top").count("Submit") == 0
    assert films.status().counts == before
    look.kill()


# ── accessibility────────────────────────────────────────────────────────────────────────────────


def _screens(films: Queue, site: PageSite, word: str) -> list[tuple[str, str]]:
    failed = failed_job(films, f"{word} {'x' * 150}")
    films.set_scheduler(f"nightly-{word}", {"pattern": "0 3 * * *", "tz": "Europe/Berlin"})
    parent = films.add_flow(
        {"name": f"assemble-{word}", "children": [{"name": "later", "opts": {"delay": 3_600_000}}]}
    )
    films.wait(films.add(f"odd-{word}", {"text": "line"}).id, timeout_s=30)
    return [
        ("#/jobs?wire=bullmq", QUEUE),
        (ONE_QUEUE, f"nightly-{word}"),
        (f"{ONE_QUEUE}&state=failed", "Retry all 1"),
        (job_route(failed), "Stack trace"),
        (job_route(failed, "result"), "Stack trace"),
        (job_route(failed, "wire"), "HGETALL"),
        (job_route(parent.id, "flow"), "later"),
    ]


@clause("O-4")
def test_o04_queue_screens_are_accessible_and_fit_a_phone(
    site: PageSite, films: Queue, browser: Browser, fresh: Fresh
) -> None:
    """Nothing serious for axe; on a phone no sideways scroll and large targets."""
    screens = _screens(films, site, fresh("word"))
    with browser.page() as page:
        for route, shown in screens:
            # The tabs of a job of another wire are checked in its own test.
            if "tab=" not in route or "tab=flow" in route:
                show(page, site.url, route, shown)
                assert serious_violations(page) == [], route
        page.run("flipTheme()")
        for route, shown in again_in_the_other_theme(screens[:2]):
            show(page, site.url, route, shown)
            assert serious_violations(page, ("color-contrast",)) == [], f"{route}, other theme"
        show(page, site.url, *screens[1])
        press(page, "n")
        page.until_text("dialog", "Add a job")
        until(page, "!document.querySelector('dialog').getAnimations().length", "the open sheet")
        assert serious_violations(page) == [], "add a job"
        press(page, "Escape")
    with browser.page(PHONE) as page:
        for route, shown in screens:
            show(page, site.url, route, shown)
            wide = page.run("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{route} is {wide} px too wide"
            small: list[Any] = page.run(
                "[...document.querySelectorAll('.states a, .page .btn:not(.slim)')]"
                ".filter((e) => e.clientHeight && e.clientHeight < 42).map((e) => e.innerText)"
            )
            assert small == [], route
