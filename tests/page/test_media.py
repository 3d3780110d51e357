"""O-4: images and predictions on the page: real photos, a real bucket, a bot with stand-ins."""

from __future__ import annotations

import json
from typing import Final

import pytest

from tests.page.media import MediaSite, choose_files, drop_file
from tests.page.site import (
    PageSite,
    again_in_the_other_theme,
    click_text,
    press,
    serious_violations,
    show,
    until,
)
from tests.support import Fresh, clause, wait_until_sync
from tests.support.browser import PHONE, Browser, Page
from tests.systems.images.site import plain_photo, portrait
from tests.systems.predictions.site import png

# One browser and one site for all tests of the page.
pytestmark = pytest.mark.xdist_group("page")
HOSTILE: Final = "<img src=x onerror='window.hacked=1'><script>window.hacked=1<"
NOT_HACKED: Final = "!window.hacked && !document.querySelector('#root script, #root [onerror]')"
SHOWN: Final = "document.querySelector('.shown img.pic')?.naturalWidth > 100"
HOLD_LISTS: Final = """window.lists = Object.assign([], { hold: true, arrived: 0 });
  const ask = window.fetch;
  window.fetch = async (url, options) => {
    const answer = await ask(url, options);
    if (!/\\/v1\\/images(\\?|$)/.test(new URL(url, location).href)) return answer;
    if (lists.hold) await new Promise((arrive) => lists.push(arrive));
    lists.arrived += 1;
    return answer;
  };"""


def hash_of(page: Page) -> str:
    return str(page.run("location.hash"))


def no_other_host(page: Page, url: str) -> bool:
    """Whether all requests of the page are to its own host or to blobs."""
    return all(each.url.startswith((url, f"blob:{url}", "data:")) for each in page.requests)


# ── images ───────────────────────────────────────────────────────────────────────────────────────


@clause("O-4", "I-12")
def test_o04_a_photo_is_sent_followed_and_shown_without_its_face(
    media: MediaSite, browser: Browser, fresh: Fresh
) -> None:
    name = f"{fresh('team')}.jpg"
    photo = media.file(name, portrait())
    media.published(f"{fresh('first')}.jpg", plain_photo())
    with browser.page() as page:
        media.sign_in(page)
        page.open(f"{media.url}/#/images")
        page.until_text(".side", "Images")
        page.until_text(".drop", "up to 1 MB")
        with media.photo_workers_stopped():
            choose_files(page, photo)
            page.until_text(".sent", "Processing")
            until(page, "document.querySelector('.sent .stages')", "its bar")
            page.until_text("table.media", name)
            assert "Newest result" not in page.text() or name not in page.text(".shown")
        until(page, SHOWN, "the published photo")
        page.until_text(".shown", "1 face hidden")
        page.until_text(".shown", "% smaller")
        page.until_text(".shown", "never shown")
        events = [(each.event, json.loads(each.data)["stage"]) for each in page.messages]
        assert events[0][0] == "processing"
        assert events[-1] == ("ready", "done")
        until(page, "document.querySelectorAll('.stages .done').length >= 6", "the whole bar")

        (image,) = [each for each in media.client.images.list().images if each.filename == name]
        click_text(page, "table.media a", name)
        until(page, f"location.hash === '#/images/{image.image_id}'", "the view in the URL")
        # The newest result was shown before; the URL changes before the view does.
        page.until_text(".shown h2", name)
        link = "document.querySelector('a[download]')"
        page.until_text(".shown", "Download")
        assert page.run(f"{link}.download") == name.replace(".jpg", ".webp")
        assert page.run(f"{link}.href").startswith(f"blob:{media.url}/")
        # No picture comes from the bucket's address, and none is the original.
        assert no_other_host(page, media.url)
        assert all(media.keys["ops"] not in each.url for each in page.requests)

        click_text(page, ".shown button", "Delete")
        page.until_text("dialog", f"Delete {name}?")
        click_text(page, "dialog button", "Keep it")
        until(page, "!document.querySelector('dialog')", "the question to close")
        click_text(page, ".shown button", "Delete")
        # A list that was read before the deletion arrives after it.
        page.run(HOLD_LISTS)
        until(page, "lists.length", "a list to be on its way")
        click_text(page, "dialog button", "Delete")
        until(page, "location.hash === '#/images'", "the list")
        page.run("lists.hold = false, lists.forEach((arrive) => arrive())")
        until(page, "lists.arrived > lists.length", "a later list")
        wait_until_sync(lambda: name not in page.text("main"), "the row to be removed")
    assert name not in [each.filename for each in media.client.images.list().images]


@clause("O-4", "I-6")
def test_o04_refused_and_failed_photos_are_explained(
    media: MediaSite, browser: Browser, fresh: Fresh
) -> None:
    word = fresh("word")
    files = {
        f"{word}-huge.jpg": (b"\xff\xd8\xff" + bytes(1_100_000), "may have 1 MB"),
        f"{word}-notes.jpg": (b"not a photo at all", "is not JPEG, PNG, WebP, AVIF or HEIC"),
        f"{word}-empty.png": (b"", "The file is empty"),
        f"{word}-torn.jpg": (plain_photo()[:-200], "DECODE_FAILED"),
    }
    with browser.page() as page:
        media.sign_in(page)
        page.open(f"{media.url}/#/images")
        page.until_text(".drop", "up to 1 MB")
        choose_files(page, *(media.file(name, body) for name, (body, _) in files.items()))
        for name, (_, words) in files.items():
            row = f"""[...document.querySelectorAll('.sent li')].find(
              (each) => each.innerText.includes({json.dumps(name)}))?.innerText ?? ''"""
            until(page, f"({row}).includes({json.dumps(words)})", f"{words!r} for {name}")
        # Only the last one was sent; its record is in the list.
        page.until_text("table.media", f"{word}-torn.jpg")
        assert f"{word}-huge.jpg" not in page.text("table.media")
        click_text(page, "table.media a", f"{word}-torn.jpg")
        page.until_text(".shown", "Nothing of it was published")
        page.click(f"[aria-label='Remove {word}-huge.jpg from this list']")
        wait_until_sync(
            lambda: f"{word}-huge.jpg" not in page.text("main"), "the row to be removed"
        )


@clause("O-4", "I-20")
def test_o04_a_refusal_of_the_upload_is_explained(media: MediaSite, browser: Browser) -> None:
    """Refusals of the gateway that the page cannot predict."""
    answers = {
        (413, "too_large"): "Send a smaller one",
        (415, "unsupported_media_type"): "not of the type that was announced",
        (422, "not_an_image"): "This is not a photo",
        (429, "rate_limited"): "Too many requests with this key",
        (503, "upload_capacity"): "Too many photos are being processed now",
    }
    photo = media.file("refused.jpg", plain_photo())
    with browser.page(may_complain=True) as page:
        media.sign_in(page)
        page.open(f"{media.url}/#/images")
        page.until_text(".drop", "up to 1 MB")
        for (status, code), words in answers.items():
            page.run(f"window.refusal = {json.dumps({'status': status, 'code': code})}")
            page.run(REFUSE_UPLOADS)
            choose_files(page, photo)
            page.until_text(".sent li", words)
            page.run("document.querySelector('.sent .copy').click()")
            until(page, "!document.querySelector('.sent li')", "the row to be removed")


# The upload's answer as the gateway would send it; a full spool takes minutes to make.
REFUSE_UPLOADS: Final = """
  XMLHttpRequest.prototype.send = function () {
    Object.defineProperty(this, "status", { value: window.refusal.status });
    Object.defineProperty(this, "responseText", { value: JSON.stringify(window.refusal) });
    this.onload();
  };
"""


@clause("O-4", "I-35")
def test_o04_tenants_and_scopes_limit_the_page(
    media: MediaSite, browser: Browser, fresh: Fresh
) -> None:
    name = f"{fresh('private')}.jpg"
    image_id = media.published(name, plain_photo())
    with browser.page(may_complain=True) as page:  # the browser complains about a 404
        media.sign_in(page, "acme")
        page.open(f"{media.url}/#/images/{image_id}")
        page.until_text("main", "No such image.")
        page.until_text("main", "No image yet.")
        assert name not in page.text()
        show(page, media.url, "#/predictions", "No task yet.")
        assert "Reconcile now" not in page.text()
    with browser.page() as page:
        media.sign_in(page, "reader")
        page.open(f"{media.url}/#/images/{image_id}")
        until(page, SHOWN, "the published photo")
        assert "Delete" not in page.text("main")
        assert not page.run("!!document.querySelector('.drop')")


HELD: Final = "document.querySelector('.draw img')?.naturalWidth > 100"


def held_photo(reviewed: MediaSite, name: str) -> str:
    """A photo in which nothing was found; its image id."""
    image_id = reviewed.client.images.put(reviewed.file(name, plain_photo()))
    wait_until_sync(lambda: reviewed.get(f"/v1/images/{image_id}")["held"], "the photo to be held")
    return image_id


def draw(page: Page, *, by_finger: bool) -> None:
    """Draw an area over the upper left quarter of the held photo."""
    page.run("document.querySelector('.draw').scrollIntoView({ block: 'center' })")
    box = page.run("document.querySelector('.draw').getBoundingClientRect().toJSON()")
    places = [
        (box["x"] + part * box["width"], box["y"] + part * box["height"]) for part in (0.1, 0.5)
    ]
    (x, y), (end_x, end_y) = places
    if by_finger:
        steps = (("touchStart", x, y), ("touchMove", end_x, end_y))
        for kind, at_x, at_y in steps:
            page.call("Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": at_x, "y": at_y}])
        page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        return
    for kind, at_x, at_y in (
        ("mousePressed", x, y),
        ("mouseMoved", end_x, end_y),
        ("mouseReleased", end_x, end_y),
    ):
        page.call(
            "Input.dispatchMouseEvent", type=kind, x=at_x, y=at_y, button="left", clickCount=1
        )


@clause("O-4", "I-38")
@pytest.mark.parametrize("size", [(1280, 900), PHONE])
def test_i38_a_reviewer_draws_an_area_and_publishes_the_photo(
    reviewed: MediaSite, browser: Browser, fresh: Fresh, size: tuple[int, int]
) -> None:
    name = f"{fresh('empty')}.jpg"
    image_id = held_photo(reviewed, name)
    with browser.page(size=size) as page:
        reviewed.sign_in(page)
        page.open(f"{reviewed.url}/#/images/{image_id}")
        page.until_text("main", "Nothing was found to hide. Draw over what must not be seen")
        until(page, HELD, "the held photo")
        assert page.run("document.documentElement.scrollWidth - innerWidth") <= 0
        assert serious_violations(page) == []
        draw(page, by_finger=size == PHONE)
        click_text(page, "button", "Hide 1 area")
        # The photo is made anew; then nothing is marked and it can be approved.
        until(page, f"!document.querySelector('.draw i') && {HELD}", "the photo without marks")
        click_text(page, "button", "Approve")
        page.until_text(".shown", "1 drawn area hidden")
    assert reviewed.client.images.get(image_id).hidden_areas == 1


@clause("O-4", "I-38")
def test_i38_a_photo_is_rejected_after_a_question_and_others_only_see_that_it_waits(
    reviewed: MediaSite, browser: Browser, fresh: Fresh
) -> None:
    image_id = held_photo(reviewed, f"{fresh('empty')}.jpg")
    with browser.page() as page:
        reviewed.sign_in(page, "reader")
        page.open(f"{reviewed.url}/#/images/{image_id}")
        page.until_text("main", "A reviewer with the scope admin decides")
        assert not page.run("!!document.querySelector('.draw')")
    with browser.page() as page:
        reviewed.sign_in(page)
        page.open(f"{reviewed.url}/#/images")
        page.until_text("table.media", "waits for a reviewer")
        show(page, reviewed.url, f"#/images/{image_id}")
        until(page, HELD, "the held photo")
        click_text(page, "button", "Reject")
        click_text(page, "dialog button", "Reject")
        page.until_text("main", "CANCELED")


# ── predictions ──────────────────────────────────────────────────────────────────────────────────


@clause("O-4", "P-35")
def test_o04_tasks_are_listed_with_pictures_history_and_reconcile(
    media: MediaSite, browser: Browser, fresh: Fresh
) -> None:
    good, bad, slow = (fresh(name) for name in ("paper", "bad", "slow"))
    media.send_photo(good, png(200, 30, 60, 64, 48))
    media.task(good)
    media.send_photo(f"fail {bad}")
    media.task(f"fail {bad}")
    media.replicate.webhooks = "never"  # only a reconcile pass reads the next outcome
    media.send_photo(slow)
    media.task(slow, "started")
    media.replicate.wait_idle()
    media.replicate.webhooks = "once"
    with browser.page() as page:
        media.sign_in(page)
        page.open(f"{media.url}/#/predictions")
        page.until_text("table.tasks", good)
        click_text(page, "table.tasks a", good)
        until(page, "document.querySelector('.rail img.pic')?.naturalWidth === 64", "the picture")
        page.until_text(".steps", "Delivered")
        for step in ("Message received", "Provider asked", "Outcome known", "Outcome stored"):
            assert step in page.text(".steps")
        page.until_text(".rail", "test/invert")

        click_text(page, ".seg button", "Failed")
        until(page, "location.hash.endsWith('?state=failed')", "the view in the URL")
        page.until_text("table.tasks", f"fail {bad}")
        wait_until_sync(lambda: good not in page.text("table.tasks"), "only failed tasks")
        click_text(page, "table.tasks a", bad)
        page.until_text(".rail", "the model failed")

        click_text(page, ".seg button", "Open")
        until(page, "location.hash.endsWith('?state=open')", "the view in the URL")
        page.until_text("table.tasks", slow)
        click_text(page, "table.tasks a", slow)
        page.until_text(".steps", "not yet")
        click_text(page, ".bar button", "Reconcile now")
        page.until_text("[role=status].outcome", "open task")
        assert no_other_host(page, media.url)


# ── robustness, layout ───────────────────────────────────────────────────────────────────────────


@clause("O-4")
def test_o04_hostile_file_names_prompts_and_errors_stay_text(
    media: MediaSite, browser: Browser, fresh: Fresh
) -> None:
    word = fresh("word")
    image_id = media.published(f"{word}{HOSTILE.replace('/', '')}.jpg", plain_photo())
    media.send_photo(f"fail {HOSTILE} {word}")
    task = media.task(f"fail {HOSTILE} {word}")
    with browser.page() as page:
        media.sign_in(page)
        for route, shown in (
            ("#/images", word),
            (f"#/images/{image_id}", "onerror"),
            ("#/predictions", word),
            (f"#/predictions/{task['id']}", "the model failed"),
        ):
            show(page, media.url, route, shown)
            assert page.run(NOT_HACKED), route
        show(page, media.url, "#/images", word)
        drop_file(page, f"{word}<b>.txt", "<script>window.hacked=1</script>")
        page.until_text(".sent", "<b>.txt")
        assert page.run(NOT_HACKED)
    with browser.page(may_complain=True) as page:  # the browser complains about a 404
        media.sign_in(page)
        page.open(f"{media.url}/#/predictions/%3Cimg%20src%3Dx%3E")
        page.until_text("main", "No such task.")
        show(page, media.url, "#/images/%3Cimg%20src%3Dx%3E", "No such image.")
        assert page.run(NOT_HACKED)


@clause("O-4")
def test_o04_media_screens_are_accessible_and_fit_a_phone(
    media: MediaSite, browser: Browser, fresh: Fresh
) -> None:
    name = f"{fresh('wide')}-{'x' * 120}.jpg"
    image_id = media.published(name)
    media.failed(f"{fresh('torn')}.jpg")
    media.send_photo(f"{fresh('prompt')} {'y' * 150}")
    routes = (
        ("#/images", "Images"),
        (f"#/images/{image_id}", "Download"),
        ("#/predictions", "Took"),
    )
    with browser.page() as page:
        media.sign_in(page)
        for route, shown in routes:
            show(page, media.url, route, shown)
            assert serious_violations(page) == [], route
        for route, shown in again_in_the_other_theme(routes[1:]):
            page.run("flipTheme()")
            show(page, media.url, route, shown)
            assert serious_violations(page, ("color-contrast",)) == [], f"{route}, other theme"
            page.run("flipTheme()")
        press(page, "g", "i")
        until(page, "location.hash === '#/images'", "the screen by its letter")
    with browser.page(PHONE) as page:
        media.sign_in(page)
        for route, shown in routes:
            show(page, media.url, route, "" if shown == "Took" else shown)
            table = "table.tasks" if "predictions" in route else "table.media:not(.tasks)"
            until(page, f"document.querySelector({json.dumps(table)})", "the table")
            wide = page.run("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{route} is {wide} px too wide"
        click_text(page, ".tabbar button", "More")
        click_text(page, "dialog a", "Images")
        until(page, "location.hash === '#/images'", "the screen from the menu")
        until(page, "!document.querySelector('dialog')", "the menu to close")


@clause("O-4")
def test_o04_systems_that_are_off_are_not_in_the_navigation(
    site: PageSite, browser: Browser
) -> None:
    with browser.page() as page:
        page.open(site.url)
        page.until_text(".side", "Workers")
        page.until_text(".foot", "Open to this machine only")
        assert "Images" not in page.text(".side")
        assert "Predictions" not in page.text(".side")
