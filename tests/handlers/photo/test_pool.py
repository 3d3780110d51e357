"""The pool of workers: limits, crashes, cancellation, admission, environment of workers."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

from jobwire.handlers.photo import (
    Photo,
    PhotoError,
    PhotoOptions,
    PhotoPool,
    PoolFull,
    PoolLimits,
    SetupError,
    Step,
)
from jobwire.handlers.photo.admission import PhotoAdmission
from tests.cli.runner import is_gone
from tests.handlers.photo import images
from tests.handlers.photo.pool_runner import PLUGINS, RunningPool
from tests.support import Program, clause, wait_until, wait_until_sync

STARTER = """
import asyncio, sys
from jobwire.handlers.photo import PhotoOptions, PhotoPool, PoolLimits
async def main():
    async with PhotoPool(PoolLimits(workers=2), PhotoOptions(detect=())) as pool:
        print("pids", *pool.pids, flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""

NO_FILES = """
import asyncio, contextlib, os, resource
from jobwire.handlers.photo import PhotoOptions, PhotoPool, PoolLimits
async def main():
    pool = PhotoPool(PoolLimits(workers=2), PhotoOptions(detect=()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    with contextlib.suppress(OSError):
        while True:
            os.dup(0)
    await pool.__aenter__()
asyncio.run(main())
"""


@pytest.fixture
def dark(tmp_path: Path) -> Path:
    file = tmp_path / "dark.png"
    file.write_bytes(images.png(np.zeros((120, 160, 3), np.uint8)))
    return file


@pytest.fixture
def bright(tmp_path: Path) -> Path:
    file = tmp_path / "bright.png"
    file.write_bytes(images.png(images.quarters()))
    return file


@asynccontextmanager
async def opened(
    detector: str = "", limits: PoolLimits | None = None, *, max_megapixels: float = 50
) -> AsyncGenerator[PhotoPool]:
    """A pool of one worker with one of the detectors of `plugins.py`, or none."""
    detect = (f"{PLUGINS}:{detector}",) if detector else ()
    options = PhotoOptions(detect=detect, max_megapixels=max_megapixels)
    async with PhotoPool(limits or PoolLimits(workers=1), options) as pool:
        yield pool


async def code_of(pool: PhotoPool, source: Path, target: Path) -> str:
    """The error code of a photo; empty if it succeeds."""
    try:
        await pool.process(source, target)
    except PhotoError as error:
        return error.code
    return ""


def photo_workers() -> set[int]:
    """The processes of this test's pool."""
    children = psutil.Process().children(recursive=True)
    return {child.pid for child in children if _runs_a_worker(child)}


def only(pids: set[int]) -> list[int]:
    """The process, if there is exactly one."""
    return list(pids) if len(pids) == 1 else []


def _runs_a_worker(process: psutil.Process) -> bool:
    try:
        return "jobwire.handlers.photo.worker" in process.cmdline()
    except psutil.Error:
        return False


def _written(folder: Path) -> list[str]:
    return [file.name for file in folder.glob("*.webp")]


class Steps:
    """Steps of photos that run side by side, in order of arrival."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Step]] = []

    def of(self, name: str) -> Callable[[Step], None]:
        return lambda step: self.seen.append((name, step))

    def reached(self, name: str, step: Step) -> Callable[[], bool]:
        return lambda: (name, step) in self.seen


@clause("I-22", "I-6")
async def test_i22_crash_fails_its_own_photo_alone(
    dark: Path, bright: Path, tmp_path: Path
) -> None:
    async with opened("CrashOnDark", PoolLimits(workers=2)) as pool:
        sources = [bright, dark, bright, bright, dark, bright]
        codes = await asyncio.gather(
            *(
                code_of(pool, source, tmp_path / f"{number}.webp")
                for number, source in enumerate(sources)
            )
        )
        assert codes == ["", "DETECTION_FAILED", "", "", "DETECTION_FAILED", ""]
    written = set(await asyncio.to_thread(_written, tmp_path))
    assert written == {"0.webp", "2.webp", "3.webp", "5.webp"}


@clause("I-22", "I-6")
async def test_i22_photo_of_a_killed_worker_runs_again_up_to_a_limit(
    dark: Path, bright: Path, tmp_path: Path
) -> None:
    """The photo is not at fault when its worker is killed (by the out-of-memory killer, by an
    operator), unless that happens again and again. Other photos are not affected."""
    others = photo_workers()
    async with opened("SleepOnDark", PoolLimits(workers=2)) as pool:
        steps = Steps()
        stuck = asyncio.ensure_future(
            pool.process(dark, tmp_path / "dark.webp", on_step=steps.of("dark"))
        )
        for run in range(1, 5):
            await wait_until(
                lambda run=run: steps.seen.count(("dark", Step.DETECT)) == run,
                f"detection {run} of the dark photo",
            )
            # The one that replaces the last one may still be starting.
            (busy,) = await wait_until(
                lambda: only(photo_workers() - others - set(pool.pids)), "one worker that is busy"
            )
            os.kill(busy, signal.SIGKILL)
        with pytest.raises(PhotoError) as failed:
            await stuck
        assert failed.value.code == "INTERNAL"
        assert await code_of(pool, bright, tmp_path / "bright.webp") == ""
        assert await code_of(pool, bright, tmp_path / "again.webp") == ""


@clause("I-22")
async def test_i22_worker_killed_while_it_starts_fails_no_photo(
    bright: Path, tmp_path: Path
) -> None:
    """Both starts: of the pool, and of a worker that is replaced."""

    async def kill_starting(known: set[int]) -> None:
        (starting,) = await wait_until(lambda: photo_workers() - known, "a worker to start")
        os.kill(starting, signal.SIGKILL)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(kill_starting(photo_workers()))
        async with opened() as pool:
            # Where the kill met the very end of a start, the pool has none until a photo comes.
            assert await code_of(pool, bright, tmp_path / "first.webp") == ""
            (idle,) = pool.pids
            known = photo_workers()
            os.kill(idle, signal.SIGKILL)
            tasks.create_task(kill_starting(known))
            assert await code_of(pool, bright, tmp_path / "bright.webp") == ""


@clause("I-22")
async def test_i22_worker_killed_while_idle_fails_no_photo(bright: Path, tmp_path: Path) -> None:
    async with opened() as pool:
        for number in range(2):
            (worker,) = pool.pids
            os.kill(worker, signal.SIGKILL)
            assert await code_of(pool, bright, tmp_path / f"{number}.webp") == ""


@clause("I-22", "I-6")
@pytest.mark.parametrize(
    ("detector", "limits"),
    [
        ("SleepOnDark", PoolLimits(workers=1, deadline_s=2)),
        ("SpinOnDark", PoolLimits(workers=1, cpu_limit_s=1)),
    ],
)
async def test_i22_endless_photo_is_ended(
    dark: Path, bright: Path, tmp_path: Path, detector: str, limits: PoolLimits
) -> None:
    async with opened(detector, limits) as pool:
        (worker,) = pool.pids
        assert await code_of(pool, dark, tmp_path / "dark.webp") == "TIMEOUT"
        assert is_gone(worker)
        assert await asyncio.to_thread(_written, tmp_path) == []
        # Another worker gets the next one; its outcome depends on the machine's speed.
        assert await code_of(pool, bright, tmp_path / "bright.webp") in ("", "TIMEOUT")
        assert pool.pids != [worker]


@clause("I-22", "I-21")
async def test_i22_memory_of_a_worker_is_limited(bright: Path, tmp_path: Path) -> None:
    async with opened("Greedy") as pool:
        (worker,) = pool.pids
        assert await code_of(pool, bright, tmp_path / "out.webp") == "DETECTION_FAILED"
        assert psutil.Process(worker).rlimit(psutil.RLIMIT_AS)[1] == 1536 << 20
        assert psutil.Process(worker).rlimit(psutil.RLIMIT_CORE) == (0, 0)


@clause("I-22")
async def test_i22_a_worker_has_no_secrets_in_its_environment(
    bright: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBWIRE_SECRET", "x")
    async with opened("Curious") as pool:
        assert await code_of(pool, bright, tmp_path / "out.webp") == ""


@clause("I-22")
def test_i22_workers_end_with_a_killed_parent() -> None:
    program = Program.script(STARTER)
    try:
        workers = [int(pid) for pid in program.wait_for_line("pids").split()[1:]]
        assert len(workers) == 2
        os.kill(program.pid, signal.SIGKILL)
        wait_until_sync(lambda: all(map(is_gone, workers)), "the workers to end")
    finally:
        program.close()


@clause("I-21")
async def test_i21_cancellation_ends_the_worker_and_leaves_no_file(
    dark: Path, bright: Path, tmp_path: Path
) -> None:
    async with opened("SleepOnDark") as pool:
        (worker,), steps = pool.pids, Steps()
        task = asyncio.ensure_future(
            pool.process(dark, tmp_path / "dark.webp", on_step=steps.of("dark"))
        )
        await wait_until(steps.reached("dark", Step.DETECT), "the dark photo's detection")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert is_gone(worker)
        assert await code_of(pool, bright, tmp_path / "bright.webp") == ""
    assert not (tmp_path / "dark.webp").exists()


@clause("I-22")
async def test_i22_a_photo_canceled_midway_does_not_affect_the_next(
    bright: Path, tmp_path: Path
) -> None:
    def fail(step: Step) -> None:
        if step is Step.DECODE:
            raise RuntimeError("the caller's own fault")

    small = tmp_path / "small.png"
    small.write_bytes(images.png(images.quarters(60, 40)))
    async with opened() as pool:
        with pytest.raises(RuntimeError, match="the caller's own fault"):
            await pool.process(bright, tmp_path / "a.webp", on_step=fail)
        photo = await pool.process(small, tmp_path / "b.webp")
        assert (photo.width, photo.height) == (60, 40)
    assert await asyncio.to_thread(_written, tmp_path) == ["b.webp"]


@clause("I-21")
async def test_i21_full_pool_refuses_at_once_and_loses_nothing(
    dark: Path, bright: Path, tmp_path: Path
) -> None:
    async with opened("SleepOnDark", PoolLimits(workers=1, max_waiting=1)) as pool:
        assert not pool.is_full
        steps = Steps()
        running = asyncio.ensure_future(
            pool.process(dark, tmp_path / "a.webp", on_step=steps.of("dark"))
        )
        await wait_until(steps.reached("dark", Step.DETECT), "the dark photo's detection")
        waiting = asyncio.ensure_future(pool.process(bright, tmp_path / "b.webp"))
        await wait_until(lambda: pool.is_full, "the pool to be full")
        with pytest.raises(PoolFull):
            await pool.process(bright, tmp_path / "c.webp")
        running.cancel()
        assert (await waiting).file_size > 0
        assert not pool.is_full
        assert await code_of(pool, bright, tmp_path / "c.webp") == ""


@clause("I-21")
async def test_i21_decoded_pixels_stay_within_the_budget(bright: Path, tmp_path: Path) -> None:
    """Two workers are free, and a large photo waits until its pixels fit; no photo overtakes it."""
    large = tmp_path / "large.jpg"
    large.write_bytes(images.jpeg(images.quarters(1200, 800), interlace=True))  # 7.7 MB
    half = tmp_path / "half.png"
    half.write_bytes(images.png(np.zeros((700, 1000, 3), np.uint8)))  # 2.8 MB, and dark
    limits = PoolLimits(workers=2, pixel_budget_mb=8)
    async with opened("SleepOnDark", limits, max_megapixels=1) as pool:
        steps = Steps()

        def begin(name: str, source: Path) -> asyncio.Future[Photo]:
            target = tmp_path / f"{name}.webp"
            return asyncio.ensure_future(pool.process(source, target, on_step=steps.of(name)))

        first = begin("half", half)
        await wait_until(steps.reached("half", Step.DETECT), "the first photo's detection")
        second = begin("large", large)
        await wait_until(lambda: pool.waiting == 1 or second.done(), "the large photo to wait")
        third = begin("small", bright)
        await wait_until(lambda: pool.waiting == 2 or third.done(), "the small one to wait")
        assert {name for name, _ in steps.seen} == {"half"}
        first.cancel()
        await asyncio.gather(second, third)
        assert {name for name, _ in steps.seen} == {"half", "large", "small"}


@clause("I-21")
async def test_i21_slot_of_a_canceled_photo_goes_to_the_next() -> None:
    """It is canceled at the moment of its turn."""
    admission = PhotoAdmission(workers=1, budget=0, max_waiting=2)
    leave = asyncio.Event()

    async def hold(until: asyncio.Event) -> None:
        async with admission.admitted(0):
            await until.wait()

    first = asyncio.ensure_future(hold(leave))
    await asyncio.sleep(0)
    second, third = asyncio.ensure_future(hold(asyncio.Event())), asyncio.ensure_future(hold(leave))
    await wait_until(lambda: admission.waiting == 2, "two to wait")
    leave.set()
    await first  # the turn is the second's now, and it has not run yet
    second.cancel()
    ended = await asyncio.gather(second, third, return_exceptions=True)
    assert isinstance(ended[0], asyncio.CancelledError)
    assert ended[1] is None

    first = asyncio.ensure_future(hold(leave := asyncio.Event()))
    await asyncio.sleep(0)
    second, third = asyncio.ensure_future(hold(asyncio.Event())), asyncio.ensure_future(hold(leave))
    await wait_until(lambda: admission.waiting == 2, "two to wait")
    first.cancel()
    second.cancel()  # before its turn comes, in the same tick
    leave.set()
    ended = await asyncio.gather(first, second, third, return_exceptions=True)
    assert [type(each) for each in ended[:2]] == [asyncio.CancelledError] * 2
    assert ended[2] is None


@clause("I-21")
async def test_i21_closing_the_pool_ends_running_and_waiting_photos(
    dark: Path, bright: Path, tmp_path: Path
) -> None:
    async with opened("SleepOnDark") as pool:
        (worker,), steps = pool.pids, Steps()
        running = asyncio.ensure_future(
            pool.process(dark, tmp_path / "a.webp", on_step=steps.of("dark"))
        )
        await wait_until(steps.reached("dark", Step.DETECT), "the dark photo's detection")
        waiting = asyncio.ensure_future(pool.process(bright, tmp_path / "b.webp"))
        await wait_until(lambda: pool.waiting == 1, "the other photo to wait")
    ended = await asyncio.gather(running, waiting, return_exceptions=True)
    assert [isinstance(each, PhotoError) and each.code for each in ended] == ["INTERNAL"] * 2
    assert is_gone(worker)
    assert await asyncio.to_thread(_written, tmp_path) == []


@clause("I-21")
async def test_i21_a_worker_is_replaced_after_its_maximum_of_photos(
    bright: Path, tmp_path: Path
) -> None:
    async with opened(limits=PoolLimits(workers=1, photos_per_worker=2)) as pool:
        seen = set[int]()
        for number in range(5):
            assert await code_of(pool, bright, tmp_path / f"{number}.webp") == ""
            seen.update(pool.pids)
        assert len(seen) >= 2


@clause("I-21")
@pytest.mark.parametrize(
    ("limits", "options", "fault"),
    [
        (PoolLimits(pixel_budget_mb=100), PhotoOptions(), "pixel_budget_mb must be at least 489"),
        (PoolLimits(workers=-1), PhotoOptions(), "workers"),
        (PoolLimits(), PhotoOptions(long_side=8000), "long_side"),
        (PoolLimits(), PhotoOptions(quality=0), "quality"),
    ],
)
def test_i21_invalid_limits_are_refused(
    limits: PoolLimits, options: PhotoOptions, fault: str
) -> None:
    with pytest.raises(SetupError, match=fault):
        PhotoPool(limits, options)


@clause("I-21")
async def test_i21_photo_that_could_never_fit_is_refused_at_once(
    bright: Path, tmp_path: Path
) -> None:
    async with opened() as pool:
        options = PhotoOptions(detect=(), max_megapixels=500)
        with pytest.raises(SetupError, match="pixel_budget_mb"):
            await pool.process(bright, tmp_path / "out.webp", options=options)


@clause("I-21")
@pytest.mark.parametrize("memory_mb", [1, 32, 64, 96, 128, 160, 192])
def test_i21_too_little_memory_for_a_worker_is_an_error_at_start(memory_mb: int) -> None:
    """Another allocation is the first that fails, of Python, of a library or of the loader; which
    one differs by kernel and library, and so does what is enough."""
    refused = ""
    try:
        with RunningPool(PoolLimits(workers=1, worker_memory_mb=memory_mb)):
            pass
    except SetupError as error:
        refused = error.message
    if refused or memory_mb <= 64:
        assert f"worker_memory_mb = {memory_mb} too small?" in refused


@clause("I-21")
@pytest.mark.parametrize(
    ("how", "found"),
    [
        ("NoMemory", "MemoryError"),
        ("NoSegment", "ImportError: libvips.so.42: failed to map segment"),
        ("NoAllocation", "Cannot allocate memory"),
        ("Aborted", "was ended by SIGABRT"),
        ("Killed", "was ended by SIGKILL"),
        ("Exited", "ended with exit code 127"),
    ],
)
def test_i21_every_sign_of_too_little_memory_names_the_setting(how: str, found: str) -> None:
    options = PhotoOptions(detect=(f"{PLUGINS}:{how}",))
    with pytest.raises(SetupError) as refused, RunningPool(PoolLimits(workers=1), options):
        pass
    assert found in refused.value.message
    assert "worker_memory_mb = 1536" in refused.value.message


@clause("I-21")
def test_i21_a_machine_that_starts_no_process_is_an_error_at_start() -> None:
    with Program.script(NO_FILES) as starter:
        line = starter.wait_for_line("a photo worker cannot be started: [Errno 24]")
    assert "are 2 workers too many for this machine?" in line
