"""The queues in the pictures of the page: jobs in every state, a flow, schedulers, by use."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from jobwire import Client
from tests.support.browser import PHONE, Page
from tests.support.wait import wait_until_sync

if TYPE_CHECKING:
    from tools.screenshots import Camera

VIDEO: Final = "video"
EMAIL: Final = "email"
THUMBNAILS: Final = "thumbnails"
_HOLD_S: Final = 300


def fill_queues(client: Client) -> dict[str, str]:
    """Use three queues; the ids of the jobs that are shown by themselves."""
    video, email, thumbnails = (client.queue(name) for name in (VIDEO, EMAIL, THUMBNAILS))
    for number in range(40):
        email.add("send", {"to": f"reader-{number}@example.org", "template": "weekly"})
    for number in range(4):
        email.add("send", {"to": f"old-{number}@example.org", "bounce": True}, {"attempts": 1})
    for minutes in (3, 25, 90):
        email.add("remind", {"to": "reader@example.org"}, {"delay": minutes * 60_000})
    email.set_scheduler(
        "weekly-digest", {"pattern": "0 8 * * 1", "tz": "Europe/Berlin"}, name="digest"
    )
    email.set_scheduler("clean-bounces", {"every": 900_000}, name="clean")

    render = video.add(
        "render",
        {"scene": 7, "title": "Night over the harbour", "api_key": "not shown", "hold_s": _HOLD_S},
        {"attempts": 3, "backoff": {"type": "fixed", "delay": 900}},
    )
    wait_until_sync(lambda: _progress(client, render.id) == 62, "the render", timeout_s=60)
    scenes: list[dict[str, object]] = [
        {"name": "scene", "data": {"scene": 1}},
        {"name": "scene", "data": {"scene": 2}},
        {"name": "scene", "data": {"scene": 3, "hold_s": _HOLD_S}},
        {
            "name": "voice-over",
            "opts": {"delay": 600_000},
            "children": [{"name": "script", "data": {"words": 120}}],
        },
    ]
    flow = video.add_flow({"name": "assemble", "data": {"title": "Harbour"}, "children": scenes})
    wait_until_sync(lambda: video.status().counts["active"] >= 2, "a scene", timeout_s=60)
    for number in range(9):
        thumbnails.add("shrink", {"photo": f"{number:04}.jpg"})
    thumbnails.add("shrink", {"photo": "urgent.jpg"}, {"priority": 1})
    thumbnails.pause()
    wait_until_sync(lambda: email.status().counts["failed"] == 4, "the bounces", timeout_s=60)
    wait_until_sync(lambda: email.status().counts["completed"] >= 40, "the mails", timeout_s=60)
    failed = email.jobs("failed").jobs[0]
    return {"render": render.id, "flow": flow.id, "failed": failed.id}


def _progress(client: Client, job_id: str) -> object:
    time.sleep(0.05)
    return client.queue(VIDEO).job(job_id).progress


def shoot_queues(camera: Camera, ids: dict[str, str]) -> None:
    render = f"#/jobs/bullmq/{VIDEO}/{ids['render']}"
    shots = [
        ("queues", "#/jobs?wire=bullmq", "thumbnails"),
        ("queue", f"#/jobs?wire=bullmq&queue={VIDEO}", "assemble"),
        ("queue-job", render, "progress"),
    ]
    for name, route, until in shots:
        camera.take(f"page-{name}", route, until)
        camera.take(f"page-{name}-dark", route, until, dark=True)
        camera.take(f"page-{name}-phone", route, until, size=PHONE)
    more = [
        ("queue-schedulers", f"#/jobs?wire=bullmq&queue={EMAIL}", "weekly-digest"),
        ("queue-job-logs", f"{render}?tab=logs", "scene 7"),
        ("queue-job-wire", f"{render}?tab=wire", "HGETALL"),
        ("queue-job-flow", f"#/jobs/bullmq/{VIDEO}/{ids['flow']}?tab=flow", "voice-over"),
        ("queue-job-error", f"#/jobs/bullmq/{EMAIL}/{ids['failed']}?tab=result", "mailbox"),
    ]
    for name, route, until in more:
        camera.take(f"page-{name}", route, until)

    def ask(page: Page) -> None:
        page.click(".tabhead .btn")
        page.until_text("dialog", "Retry 4 failed jobs?")

    failed = f"#/jobs?wire=bullmq&queue={EMAIL}&state=failed"
    camera.take("page-queue-retry", failed, "Retry all 4", act=ask)
