"""O-4: the page in a real browser: every flow, hostile content, restarts, accessibility."""

from __future__ import annotations

import json
from typing import Final

import pytest

from jobwire.client import NewJob
from tests.page.reader import WORDS
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
from tests.support import Fresh, clause, wait_until_sync
from tests.support.browser import PHONE, Browser, Page
from tests.support.servers import plain_client

# One browser and one site for all tests of the page.
pytestmark = pytest.mark.xdist_group("page")
HOSTILE: Final = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"
NOT_HACKED: Final = "!window.hacked && !document.querySelector('#root img, #root script')"
MANY: Final = 400
# The page's clock runs 20 times as fast: a poll every 100 ms.
FAST: Final = """
  const real = setTimeout;
  window.setTimeout = (act, ms, ...given) => real(act, ms / 20, ...given);
"""
FIVE_POLLS: Final = "new Promise((done) => setTimeout(done, 10000))"


def job_id_of(page: Page) -> str:
    return str(page.run("location.hash")).split("/")[3].partition("?")[0]


# ── queues of jobs, cron ─────────────────────────────────────────────────────────────────────────


@clause("O-4", "J-53", "J-52")
def test_o04_a_queue_without_a_worker_is_named_and_own_queues_and_cron_are_managed(
    site: PageSite, browser: Browser
) -> None:
    """A second worker has stopped while a job waits in its queue; other queues have a worker."""
    with site.fleet.start_worker("tests.page.nightly:app") as worker:
        wait_until_sync(lambda: [each.name for each in site.client.crons()] == ["nightly"])
        worker.terminate()
        worker.wait()
    job = site.client.submit("report")
    with browser.page() as page:
        page.open(site.url)
        page.until_text(".verdict", "Queue reports: no worker, 1 waiting, since")
        page.until_text(".systems tbody", "reports")
        show(page, site.url, f"#/jobs/streams/{job.job_id}", "Queue reports: no worker, 1 waiting")
        show(page, site.url, "#/jobs?wire=bullmq", "reports")
        page.until_text(".own tbody", "No worker")
        click_text(page, ".own tr:has(button[aria-label='Pause reports']) button", "Pause")
        click_text(page, "dialog button", "Pause queue")
        page.until_text(".own tbody", "Paused")
        assert site.client.get(job.job_id).status == "queued"
        click_text(page, ".own button[aria-label='Purge reports']", "Purge")
        click_text(page, "dialog button", "Cancel these jobs")
        page.until_text("[role=status]", "1 job of reports canceled.")
        click_text(page, ".own button[aria-label='Resume reports']", "Resume")
        until(page, "document.querySelector(\"[aria-label='Pause reports']\")", "the queue")

        click_text(page, ".crons button", "Pause")
        page.until_text(".crons tbody", "Paused")
        assert [each.paused for each in site.client.crons()] == [True]
        click_text(page, ".crons button", "Run now")
        until(page, "location.hash.startsWith('#/jobs/streams/')", "the new job")
        run = site.client.get(job_id_of(page))
        assert (run.task, run.queue, run.payload) == ("report", "reports", {"kind": "full"})
        assert site.client.purge_queue("reports").canceled == 1


@clause("O-4")
def test_o04_a_failed_job_opens_on_its_error_and_failures_have_the_exception(
    site: PageSite, browser: Browser, fresh: Fresh
) -> None:
    word = fresh("word")
    job = site.client.submit("raise", {"text": word})
    assert site.ended(job.job_id) == "error"
    with browser.page() as page:
        page.open(f"{site.url}/#/jobs/streams/{job.job_id}")
        page.until_text("main", f"ZeroDivisionError: {word}")
        page.until_text(".life", "Started")
        show(page, site.url, "#/failures", f"ZeroDivisionError: {word}")


# ── flows ────────────────────────────────────────────────────────────────────────────────────────


@clause("O-4")
def test_o04_a_job_is_submitted_from_the_page_and_followed_live(
    site: PageSite, browser: Browser, fresh: Fresh
) -> None:
    gate = fresh("gate")
    with browser.page() as page:
        page.open(site.url)
        page.until_text(".verdict", ".")
        page.until_text(".systems", "streams")
        press(page, "n")
        page.until_text("dialog", "A JSON object")
        # In one step: a poll in between would render the old choice again.
        page.run(
            "const task = document.querySelector('select[name=task]'); task.value = 'speak';"
            "task.dispatchEvent(new Event('change'))"
        )
        until(page, "document.querySelector('#payload').value.includes('lease')", "the example")

        fill(page, "#payload", '{"gate": ')
        page.until_text("#fault", "Not JSON")
        big = 12345678901234567890
        fill(page, "#payload", f'{{"gate": "{gate}", "big": {big}, "api_key": "hush"}}')
        page.until_text("#fault", "A JSON object")
        click_text(page, "dialog footer button", "Submit")

        page.until_text(".events", "A lease protects a job from")
        page.until_text(".jobhead", "50 %")
        page.until_text(".life", "Reporting")
        assert "at the same time" not in page.text(".events")
        job_id = job_id_of(page)
        site.let(gate)
        page.until_text(".jobhead", "Done")
        page.until_text(".events", "at the same time")
        page.until_text(".life", "Ended")
        types = page.run("[...document.querySelectorAll('.events .st')].map((e) => e.innerText)")
        assert types.count("queued") == types.count("running") == types.count("done") == 1

        click_text(page, ".jobtabs a", "Result")
        page.until_text("pre.json", "lease")
        click_text(page, ".jobtabs a", "Payload")
        page.until_text("pre.json", str(big))
        assert "hush" not in page.text()
        click_text(page, "button", "Show secrets")
        page.until_text("pre.json", "hush")
        assert site.client.get(job_id).status == "done"


@clause("O-4", "J-16")
def test_o04_cancel_run_again_and_run_with_edits(
    site: PageSite, browser: Browser, fresh: Fresh
) -> None:
    gate = fresh("gate")
    job = site.client.submit("speak", {"gate": gate})
    with browser.page() as page:
        page.open(f"{site.url}/#/jobs/streams/{job.job_id}")
        page.until_text(".jobhead", "50 %")
        click_text(page, ".jobhead button", "Cancel job")
        page.until_text("dialog", "Cancel this job?")
        click_text(page, "dialog button", "Leave it")
        until(page, "!document.querySelector('dialog')", "the question to close")
        assert site.client.get(job.job_id).status == "running"
        click_text(page, ".jobhead button", "Cancel job")
        click_text(page, "dialog button", "Cancel job")
        page.until_text(".jobhead", "Canceled")
        assert site.ended(job.job_id) == "canceled"

        click_text(page, ".jobhead button", "Run again")
        until(page, f"location.hash && !location.hash.includes('{job.job_id}')", "the new job")
        again = job_id_of(page)
        page.until_text(".rail", "Run again of")
        assert site.client.get(again).retry_of == job.job_id
        site.let(gate)
        page.until_text(".jobhead", "Done")

        click_text(page, ".jobhead button", "Run a copy")
        until(page, f"document.querySelector('#payload')?.value.includes('{gate}')", "the payload")
        fill(page, "#payload", '{"text": "edited words"}')
        click_text(page, "dialog footer button", "Submit")
        until(page, f"!location.hash.includes('{again}')", "the third job")
        page.until_text(".events", "edited words")
        page.until_text(".jobhead", "Done")


@clause("O-4", "J-14")
def test_o04_jobs_are_listed_filtered_found_and_acted_on(
    site: PageSite, browser: Browser, fresh: Fresh
) -> None:
    word = fresh("word")
    broken = [site.failed_job(f"{word} {number}", word) for number in range(2)]
    delayed = site.client.submit("odd", {"text": word}, delay_s=3600)
    with browser.page() as page:
        page.open(f"{site.url}/#/jobs?state=failed")
        page.until_text("table.jobs", word)
        assert "Done" not in page.text("table.jobs tbody")
        click_text(page, ".tabs a", "Scheduled")
        page.until_text("table.jobs tbody", "due in")
        until(page, "location.hash.includes('state=scheduled')", "the view in the URL")

        fill(page, "#filter", delayed.job_id[:13])
        page.until_text(".scan, .empty", "ooked at")
        until(page, "document.querySelectorAll('table.jobs tbody tr').length === 1", "one row")
        fill(page, "#filter", "no such job")
        page.until_text(".empty", "with “no such job” in its id or task")
        click_text(page, ".empty a", "Clear filter")

        # Find by id, from anywhere.
        show(page, site.url, "#/workers", "Backends")
        press(page, "/")
        page.type(broken[0])
        press(page, "Enter")
        page.until_text(".jobhead", "Failed")
        assert job_id_of(page) == broken[0]
        assert [each.id for each in site.client.search(broken[0]).found] == [broken[0]]

        # Many at once: the button and the confirmation have the count.
        show(page, site.url, "#/jobs?state=failed&q=break")
        page.until_text("table.jobs", word)
        for job_id in broken:
            page.click(f"[aria-label='Select {job_id}']")
        click_text(page, ".pick button", "Run 2 again")
        page.until_text("dialog", "Run 2 jobs again?")
        click_text(page, "dialog button", "Run 2 again")
        wait_until_sync(
            lambda: {each.retry_of for each in site.client.list(task="break").jobs} >= set(broken),
            "both to run again",
        )


@clause("O-4", "J-1")
def test_o04_the_wire_tab_shows_the_keys_and_how_to_read_them(
    site: PageSite, browser: Browser, fresh: Fresh
) -> None:
    gate, key = fresh("gate"), fresh("key")
    payload = {"gate": gate, "password": "hush"}
    job = site.client.submit("speak", payload, idempotency_key=key)
    with browser.page() as page:
        page.open(f"{site.url}/#/jobs/streams/{job.job_id}?tab=wire")
        page.until_text("main", f"idempotency:{key}")
        page.until_text("main", "jobs:stream")
        text = page.text(".job")
        assert f"valkey-cli HGETALL job:{job.job_id}" in text
        assert "TTL 23 h 59 min" in text
        assert "ours" in text
        assert "hush" not in text
        click_text(page, ".seg button", "curl")
        page.until_text(".job", f"curl {site.url}/v1/jobs/{job.job_id}")
        site.let(gate)
        page.until_text(".jobhead", "Done")


@clause("O-4", "O-11")
def test_o04_failures_are_grouped_and_run_again(
    site: PageSite, browser: Browser, fresh: Fresh
) -> None:
    code = fresh("code")[:30]
    for number in (11111, 22222, 33333):
        site.failed_job(f"order {number} is broken", code)
    with browser.page() as page:
        page.open(f"{site.url}/#/failures")
        page.until_text(".faults", code)
        rows = "[...document.querySelectorAll('.faults > li')]"
        row = f"{rows}.find((each) => each.innerText.includes('{code}'))"
        assert page.run(f"{row}.querySelector('.c').innerText") == "3"
        assert "order … is broken" in page.run(f"{row}.innerText")
        click_text(page, ".faults a", code)
        page.until_text(".faults .more", "is broken")
        page.run(f"{row}.querySelector('button').click()")
        page.until_text("dialog", "Run 3 jobs again?")
        click_text(page, "dialog button", "Run 3 again")
        page.until_text("main", "3 jobs submitted again.")
        assert [each.message for each in site.client.failures(hours=2) if each.code == code] == [
            "order … is broken"
        ]
        site.failed_job("order 44444 is broken", code)  # in this hour, which may have just begun
        click_text(page, ".seg button", "1 h")
        until(page, "location.hash === '#/failures?hours=1'", "the view in the URL")
        page.until_text(".faults", code)


@clause("O-4", "O-7", "O-11")
def test_o04_workers_backends_and_settings(site: PageSite, browser: Browser, fresh: Fresh) -> None:
    gate = fresh("gate")
    job = site.client.submit("speak", {"gate": gate})
    with browser.page() as page:
        page.open(f"{site.url}/#/workers")
        page.until_text(".held", job.job_id[:6])
        page.until_text(".parts", "append-only file is on")
        page.until_text(".settings", "valkey.url")
        assert "••••@" in page.text(".settings")
        click_text(page, ".seg button", "All")
        page.until_text(".settings", "worker.slots")
        site.let(gate)


# ── robustness ───────────────────────────────────────────────────────────────────────────────────


@clause("O-4")
def test_o04_hostile_names_and_payloads_stay_text(
    site: PageSite, browser: Browser, fresh: Fresh
) -> None:
    word = fresh("word")
    echo = site.client.submit("odd", {"text": HOSTILE, HOSTILE: [HOSTILE]})
    site.ended(echo.job_id)
    failed = site.failed_job(f"{HOSTILE} {word}", f"{HOSTILE[:20]}{word}")
    with browser.page() as page:
        for route, shown in (
            (f"#/jobs/streams/{echo.job_id}", "handlers.own"),
            (f"#/jobs/streams/{echo.job_id}?tab=payload", "onerror"),
            (f"#/jobs/streams/{echo.job_id}?tab=wire", "onerror"),
            (f"#/jobs/streams/{failed}?tab=result", "onerror"),
            ("#/failures", word),
            (f"#/jobs?q={'%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E'}", "with “<img src=x"),
            ("#/", "Just ended"),
        ):
            show(page, site.url, route, shown)
            assert page.run(NOT_HACKED), route
    with browser.page(may_complain=True) as page:  # the browser complains about a 404
        page.open(f"{site.url}/#/jobs/streams/%3Cimg%20src%3Dx%3E")
        page.until_text("main", "No such job")
        assert page.run(NOT_HACKED)


@clause("O-4", "O-15")
def test_o04_a_time_that_no_calendar_has_does_not_empty_a_screen(
    site: PageSite, browser: Browser, fresh: Fresh
) -> None:
    """Another program has written it into one job of the list."""
    word = fresh("word")
    job_id = site.client.submit("odd", {"text": word}).job_id
    site.ended(job_id)
    with plain_client(site.fleet.valkey, "hostile") as plain:
        for field in ("created_ts", "updated_ts", "started_ts"):
            plain.hset(f"job:{job_id}", field, "9999999999999999")
    with browser.page() as page:
        show(page, site.url, "#/jobs", f"…{job_id[-4:]}")
        show(page, site.url, f"#/jobs/streams/{job_id}", "handlers.own")
    with plain_client(site.fleet.valkey, "hostile") as plain:
        plain.delete(f"job:{job_id}", f"job:{job_id}:events")


ODD_VALUES: Final = (
    *("null", "[]", "{}", '""', "0", "-1", "1e308", "9" * 300, "true", "\\ud800", "\x00\x1b[2J"),
    *("80." * 27_000, '{"percent":"NaN","message":{}}', '{"percent":-1e9,"message":[1]}'),
    *(
        '{"percent":1e400}',
        '{"code":{},"message":[]}',
        '{"code":null,"message":null,"attempt":"x"}',
    ),
    *("\u202egnp.exe", "🧨" * 500, "<svg onload=window.hacked=1>", '{"__proto__":{"x":1}}'),
    *(
        "[" * 60 + "]" * 60,
        '{"toString":1,"constructor":null}',
        "9999999999999999",
        "-8640000000000001",
    ),
)


@clause("O-4", "O-15")
def test_o15_no_value_of_a_job_empties_a_screen(
    site: PageSite, browser: Browser, fresh: Fresh
) -> None:
    """Other programs may write any value into any field of a job."""
    task = fresh("fuzz")
    fields = ("error", "progress", "result", "payload", "worker", "retry_of", "exception_message")
    numbers = ("created_ts", "updated_ts", "started_ts", "attempt", "cancel_ts", "ttl_s")
    ids = [f"{task}-{at:04}" for at in range(len(ODD_VALUES))]
    with plain_client(site.fleet.valkey, "hostile") as plain:
        for at, (job_id, value) in enumerate(zip(ids, ODD_VALUES, strict=True)):
            status = ("error", "running", "done")[at % 3]
            plain.hset(
                f"job:{job_id}",
                mapping={
                    "job_id": job_id,
                    "task": task,
                    "status": status,
                    "ttl_s": "600",
                    "created_ts": "1767225600000",
                    "updated_ts": "1767225600000",
                    **dict.fromkeys(fields, value),
                    **(dict.fromkeys(numbers, value) if value.lstrip("-").isdigit() else {}),
                },
            )
            plain.expire(f"job:{job_id}", 600)
            plain.zadd("jobs:index", {job_id: 1767225600000 + at})
    listed = site.client.list(task=task, limit=100).jobs
    assert len(listed) > len(ids) // 2
    with browser.page(may_complain=True) as page:
        page.open(f"{site.url}/#/jobs?task={task}")
        rows = "document.querySelectorAll('table.jobs tbody tr').length"
        until(page, f"{rows} >= {len(listed)}", "every row")
        assert page.run(NOT_HACKED)
        for job in listed:
            for tab in ("", "?tab=payload", "?tab=result"):
                show(page, site.url, f"#/jobs/streams/{job.job_id}{tab}", job.job_id[-4:])
            assert page.run(NOT_HACKED), job.job_id
    with plain_client(site.fleet.valkey, "hostile") as plain:
        plain.delete(*(f"job:{job_id}" for job_id in ids))
        plain.zrem("jobs:index", *ids)


@clause("O-4")
def test_o04_a_long_list_keeps_few_rows_in_the_page(site: PageSite, browser: Browser) -> None:
    for _ in range(MANY // 200):
        site.client.batch([NewJob("odd", {"n": n}, delay_s=3600, ttl_s=7200) for n in range(200)])
    with browser.page() as page:
        page.open(f"{site.url}/#/jobs?state=scheduled")
        page.until_text(".scan", "Look further")
        rows = "document.querySelectorAll('table.jobs tbody tr').length"
        for _ in range(5):
            before = page.text(".scan")
            click_text(page, ".scan button", "Look further")
            wait_until_sync(lambda before=before: page.text(".scan") != before, "more rows")
        assert 50 < page.run(rows) <= 200
        click_text(page, ".scan button", "Back to the newest")
        until(page, f"{rows} === 50", "the newest rows")


@clause("O-4")
def test_o04_an_open_page_continues_after_a_restart_of_the_gateway(
    site: PageSite, browser: Browser, fresh: Fresh
) -> None:
    gate = fresh("gate")
    job = site.client.submit("speak", {"gate": gate})
    with browser.page(may_complain=True) as page:
        page.open(f"{site.url}/#/jobs/streams/{job.job_id}")
        page.until_text(".events", "A lease protects a job from")
        site.kill_gateway()
        page.until_text(".banner", "No answer")
        assert "A lease protects" in page.text(".events"), "data that was read stays visible"
        site.let(gate)  # it ends while no gateway serves the page
        site.start_gateway()
        page.until_text(".jobhead", "Done")
        page.until_text(".events", "at the same time")
        until(page, "!document.querySelector('.banner')", "the banner to go")
        types = page.run("[...document.querySelectorAll('.events .st')].map((e) => e.innerText)")
        assert types.count("running") == types.count("done") == 1, "each event once"


@clause("O-4")
def test_o04_a_screen_that_could_not_be_loaded_is_opened_when_the_gateway_is_back(
    site: PageSite, browser: Browser
) -> None:
    network = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    with browser.page(may_complain=True) as page:
        page.open(site.url)
        page.until_text(".verdict", ".")
        page.call("Network.emulateNetworkConditions", offline=True, **network)
        page.run("location.hash = '#/workers'")
        page.until_text(".banner", "No answer")
        assert "Now" in page.text(".top h1"), "what was shown stays"
        page.call("Network.emulateNetworkConditions", offline=False, **network)
        page.until_text("main", "Backends")


@clause("O-4")
def test_o04_nothing_is_read_while_paused_or_hidden(site: PageSite, browser: Browser) -> None:
    with browser.page() as page:
        page.call("Page.addScriptToEvaluateOnNewDocument", source=FAST)
        page.open(site.url)
        page.until_text(".verdict", ".")
        press(page, " ")
        page.until_text(".top", "Paused")
        wait_until_sync(lambda: all(each.status for each in page.requests), "calls in flight")
        asked = len(page.requests)
        page.run(FIVE_POLLS)
        assert len(page.requests) == asked
        press(page, " ")
        page.until_text(".top", "Live")
        wait_until_sync(lambda: len(page.requests) > asked, "the page to continue")
        page.run(
            "Object.defineProperty(document, 'hidden', {get: () => true, configurable: true});"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )
        wait_until_sync(lambda: all(each.status for each in page.requests), "calls in flight")
        asked = len(page.requests)
        page.run(FIVE_POLLS)
        assert len(page.requests) == asked


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────


@clause("O-4", "O-6")
def test_o04_sign_in_and_the_scope_read(keyed: PageSite, browser: Browser, fresh: Fresh) -> None:
    failed = keyed.failed_job(fresh("word"))
    with browser.page(may_complain=True) as page:
        page.open(f"{keyed.keyed_url}/#/jobs/streams/{failed}?tab=events")
        page.until_text(".signin", "API key")
        assert serious_violations(page) == []
        fill(page, "input[name=key]", "jw_wrong")
        press(page, "Enter")
        page.until_text("#wrong", "key")
        fill(page, "input[name=key]", keyed.keys["reader"])
        press(page, "Enter")
        page.until_text(".jobhead", "Failed")
        page.until_text(".events", "error")
        assert "reader" in page.text(".foot")
        for absent in ("Run again", "Run with edits", "Submit"):
            assert absent not in page.text("main .jobhead") + page.text(".top")
        show(page, keyed.keyed_url, "#/workers", "need a key with the scope admin")
        secret = keyed.keys["reader"]
        assert all(secret not in request.url for request in page.requests)
        asked = [each.url.partition("/events?")[2] for each in page.requests]
        wanted = {"data=message", "view=clean"}
        assert any(wanted <= {*query.split("&")} and "token=" in query for query in asked), asked
        assert page.run("document.cookie + JSON.stringify(localStorage)").find(secret) < 0


@clause("O-4", "O-6")
def test_o04_a_tenant_sees_its_own_jobs_only(
    keyed: PageSite, browser: Browser, fresh: Fresh
) -> None:
    other = keyed.failed_job(fresh("word"))
    with browser.page(may_complain=True) as page:
        key = json.dumps(keyed.keys["acme"])
        script = f"sessionStorage.setItem('jobwire.key', {key})"
        page.call("Page.addScriptToEvaluateOnNewDocument", source=script)
        page.open(f"{keyed.keyed_url}/#/jobs")
        page.until_text(".empty", "No job yet.")
        show(page, keyed.keyed_url, "#/failures", "Nothing failed")
        show(page, keyed.keyed_url, f"#/jobs/streams/{other}", "No such job.")


# ── accessibility────────────────────────────────────────────────────────────────────────────────


@clause("O-4")
def test_o04_every_action_has_a_key(site: PageSite, browser: Browser, fresh: Fresh) -> None:
    failed = site.failed_job(fresh("word"))
    with browser.page() as page:
        page.open(site.url)
        page.until_text(".verdict", ".")
        press(page, "?")
        page.until_text("dialog", "find a job by id")
        press(page, "Escape")
        until(page, "!document.querySelector('dialog')", "the dialog to close")
        for letter, title in (("f", "Failures"), ("w", "Workers"), ("n", "Now"), ("j", "Jobs")):
            press(page, "g", letter)
            page.until_text(".top h1", title)
        page.until_text("table.jobs", "Failed")
        press(page, "j")
        first = "document.querySelector('table.jobs tbody tr a')"
        until(page, f"document.activeElement === {first}", "the first row")
        press(page, "x")
        page.until_text(".pick", "1 selected")
        press(page, "Escape")
        until(page, "!document.querySelector('.pick')", "the selection to go")
        press(page, "j", "k")
        until(page, f"document.activeElement === {first}", "the first row again")
        press(page, "Enter")
        page.until_text(".jobhead", "attempt")
        assert failed


@clause("O-4")
def test_o04_axe_finds_nothing_serious(site: PageSite, browser: Browser, fresh: Fresh) -> None:
    failed = site.failed_job(fresh("word"))
    with browser.page() as page:
        for route, shown in (
            ("#/", "Just ended"),
            ("#/jobs", "Newest first"),
            (f"#/jobs/streams/{failed}?tab=events", "worker.settle"),
            (f"#/jobs/streams/{failed}?tab=wire", "HGETALL"),
            ("#/failures", "failed"),
            ("#/workers", "append-only"),
        ):
            show(page, site.url, route, shown)
            assert serious_violations(page) == [], route
            if route in again_in_the_other_theme(("#/", "#/workers")):
                page.run("flipTheme()")
                assert serious_violations(page, ("color-contrast",)) == [], f"{route}, other theme"
        press(page, "n")
        page.until_text("dialog", "A JSON object")
        until(page, "!document.querySelector('dialog').getAnimations().length", "the open sheet")
        assert serious_violations(page) == [], "submit"


@clause("O-4")
def test_o04_a_phone_has_a_bar_and_no_sideways_scroll(
    site: PageSite, browser: Browser, fresh: Fresh
) -> None:
    failed = site.failed_job(f"{fresh('word')} {'x' * 150}")
    with browser.page(PHONE) as page:
        for route, shown in (
            ("#/", "Just ended"),
            ("#/jobs", "Failed"),
            (f"#/jobs/streams/{failed}", "Others of this kind"),
            (f"#/jobs/streams/{failed}?tab=wire", "HGETALL"),
            ("#/failures", "failed"),
            ("#/workers", "append-only"),
        ):
            show(page, site.url, route, shown)
            wide = page.run("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{route} is {wide} px too wide"
            small = page.run(
                "[...document.querySelectorAll('.tabbar > *')].map((e) => e.clientHeight)"
            )
            assert min(small) >= 44
        click_text(page, ".tabbar button", "More")
        page.until_text("dialog", "Switch theme")


@clause("A-8", "O-4")
@pytest.mark.parametrize("size", [None, PHONE], ids=["desktop", "phone"])
def test_a08_the_text_of_a_job_that_is_taken_over_is_shown_once(
    site: PageSite, browser: Browser, fresh: Fresh, size: tuple[int, int] | None
) -> None:
    gate = fresh("gate")
    victim = site.start_reader()
    job_id = site.client.submit("read aloud", {"gate": gate}).job_id
    with browser.page(size) if size else browser.page() as page:
        show(page, site.url, f"#/jobs/streams/{job_id}", "A lease protects a job from")
        victim.terminate()
        assert victim.wait() == 0
        page.until_text(".attempts", "Attempt 1")
        site.let(gate)
        with site.start_reader():
            page.until_text(".jobhead", "Done")
        page.until_text(".events", "at the same time")
        texts = "[...document.querySelectorAll('.events .tokens')].map((e) => e.innerText)"
        until(page, f"{texts}.join('') === {json.dumps(WORDS)}", "the text once")
        types = page.run("[...document.querySelectorAll('.events .st')].map((e) => e.innerText)")
        assert types.count("running") == 2, "each run stays visible"
        page.until_text(".attempts", "2")
        wide = page.run("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{wide} px too wide"


@clause("D-17")
def test_d17_a_job_that_waits_shows_for_what_and_a_signal_is_sent(
    site: PageSite, browser: Browser
) -> None:
    job_id = site.client.submit("odd", {"text": "waits"}, delay_s=3600).job_id
    until_ms = 9_999_999_999_999
    wait = f'{{"for":"signal","name":"approval","until":{until_ms}}}'
    child = "0b7c1d52-7d0e-4c55-9a0f-2f6d1c1f7a10"
    with plain_client(site.fleet.valkey, "hostile") as plain:
        plain.hset(f"job:{job_id}", "waits_for", wait)
        plain.hset(f"job:{job_id}", "steps", "1")
        plain.hset(f"job:{job_id}:steps", "k:left@part", f'["{child}","part"]')
    with browser.page() as page:
        show(page, site.url, f"#/jobs/streams/{job_id}", "Waiting for signal approval")
        page.until_text(".children", "left@part")
        # Its past: it has run twice, in one attempt, and runs no more.
        with plain_client(site.fleet.valkey, "hostile") as plain:
            for kind, data in (("running", '{"attempt":1}'), ("suspended", wait)) * 2:
                fields = ("type", kind, "ts", "1700000000000", "step", "worker", "data", data)
                plain.call("XADD", f"job:{job_id}:events", "*", *fields)
        page.until_text("main", "suspended")
        assert "Running" not in page.text("main")
        page.until_text(".life", "2 runs")
        page.until_text(".attempts", "Run 2")
        fill(page, ".notice input", '{"by": "ann"}')
        click_text(page, ".notice button", "Send signal")
        with plain_client(site.fleet.valkey, "hostile") as plain:
            key = f"job:{job_id}:steps"
            wait_until_sync(lambda: '{"by":"ann"}' in str(plain.call("HGET", key, "g:approval")))
    site.client.cancel(job_id)
