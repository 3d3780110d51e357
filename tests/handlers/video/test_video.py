"""B-13: a script becomes a clip that a player can play, with one card per scene."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import av
import pytest

from jobwire.handlers.video import Scene, VideoResult, VideoScript, make_video
from jobwire.job.errors import Fail
from tests.support import clause, wait_until

_av: Any = av


class Job:
    """The context of a job: keeps what is reported."""

    def __init__(self) -> None:
        self.reports: list[tuple[float, str]] = []

    async def progress(self, percent: float, message: str = "") -> None:
        self.reports.append((percent, message))


class Store:
    def __init__(self) -> None:
        self.clips: dict[str, bytes] = {}

    async def store(self, name: str, body: bytes, content_type: str) -> str:
        assert content_type == "video/webm"
        self.clips[name] = body
        return f"http://store.example/{name}"


def script(*scenes: tuple[float, str], title: str = "My Video") -> VideoScript:
    made = [Scene(at, seconds, text, "Sunset") for at, (seconds, text) in enumerate(scenes, 1)]
    return VideoScript(title, made)


async def made(what: VideoScript) -> tuple[bytes, VideoResult, Job]:
    job, store = Job(), Store()
    result = await make_video(job, what, store)
    ((name, body),) = store.clips.items()
    assert result["videoUrl"] == f"http://store.example/{name}"
    return body, result, job


def frames(body: bytes) -> list[Any]:
    with _av.open(io.BytesIO(body)) as clip:
        assert clip.streams.video[0].codec_context.name == "vp9"
        return list(clip.decode(video=0))


def seconds(body: bytes) -> float:
    with _av.open(io.BytesIO(body)) as clip:
        return clip.duration / 1e6


@clause("B-13")
async def test_b13_the_clip_shows_each_scene_for_its_duration() -> None:
    body, result, job = await made(script((1, "Welcome"), (1.25, "Good bye")))
    assert result["duration"] == 2.25
    assert seconds(body) == pytest.approx(2.25, abs=0.01)
    shown = frames(body)
    assert (shown[0].width, shown[0].height) == (640, 360)
    first = [frame for frame in shown if frame.time < 0.99]
    second = [frame for frame in shown if frame.time >= 0.99]
    assert len(first) == 5
    # The text of the card differs between scenes, and not within one.
    text = (slice(90, 300), slice(0, 640))
    gray = [frame.to_ndarray(format="gray")[text].astype(int) for frame in (*first, *second)]
    assert abs(gray[0] - gray[4]).mean() < 1
    assert abs(gray[4] - gray[5]).mean() > 1
    assert job.reports == [
        (25, "Generating scene 1"),
        (50, "Generating scene 2"),
        (75, "Uploading video"),
        (100, "Complete"),
    ]


@clause("B-13")
async def test_b13_one_scene_and_many_scenes_report_the_same_steps() -> None:
    _, result, one = await made(script((1, "Welcome")))
    assert result["duration"] == 1
    assert isinstance(result["duration"], int), "a whole number, as the contract's example"
    assert [percent for percent, _ in one.reports] == [25, 50, 75, 100]
    _, _, many = await made(script(*[(0.05, f"Scene {at}") for at in range(60)]))
    assert [percent for percent, _ in many.reports] == [*range(25, 51), 75, 100]


@clause("B-13")
async def test_b13_equal_scripts_create_one_object() -> None:
    """A repeated attempt leaves no second clip behind."""
    what = script((0.4, "Welcome"))
    assert (await made(what))[1] == (await made(what))[1]
    assert (await made(what))[1] != (await made(script((0.4, "Good bye"))))[1]


@clause("B-19")
@pytest.mark.parametrize(
    "what",
    [
        script((7_200, "an hour"), (7_200, "and another one")),
        script(*[(0.0001, "short")] * 20),
        script((0.2, "word " * 2_000), title="long " * 40),
        script((0.2, "x" * 10_000), title="t" * 200),
        script((0.2, ""), title="\x00\x1b[31m"),
        script((0.2, "Привет \u202e עברית 你好 🎬")),
    ],
    ids=["hours", "tenths of milliseconds", "many words", "one word", "control", "scripts"],
)
async def test_b13_any_script_of_the_schema_makes_a_small_clip(what: VideoScript) -> None:
    body, _, _ = await made(what)
    assert len(what.scenes) <= len(frames(body)) <= 300 + len(what.scenes)
    assert len(body) < 1_000_000


@clause("B-13")
async def test_b13_a_cancelled_job_leaves_its_thread_and_stores_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jobwire.handlers.video.clip._MAX_FRAMES", 10**9)  # takes hours
    store, job = Store(), Job()
    running = asyncio.create_task(make_video(job, script((36_000, "hours")), store))
    await wait_until(lambda: bool(job.reports))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert store.clips == {}
    # Waits for the threads of this loop.
    await asyncio.wait_for(asyncio.get_running_loop().shutdown_default_executor(), 30)


async def test_a_script_without_scenes_fails() -> None:
    with pytest.raises(Fail, match="no scenes"):
        await make_video(Job(), script(), Store())
