"""Whole systems: a fleet that survives a killed worker, photos, predictions."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

from jobwire import AsyncClient
from jobwire.handlers.photo import PhotoOptions, PhotoPool, PoolLimits, Step
from jobwire.local import LocalValkey
from jobwire.objects import BucketConfig
from tests.handlers.photo import images
from tests.support import Fresh, Program, wait_until
from tests.support.s3 import make_bucket
from tests.systems.predictions.site import Site


async def test_a_worker_is_killed_and_another_one_does_its_job_once(
    valkey: LocalValkey, jobs: AsyncClient
) -> None:
    command = [sys.executable, "-m", "jobwire", "worker", "tests.fundamentals.app:app"]
    env = {"JOBWIRE_VALKEY_URL": valkey.url, "JOBWIRE_WORKER_LEASE": "3s"}
    with Program(command=command, env=env) as first, Program(command=command, env=env) as second:
        for program in (first, second):
            program.wait_for_line("worker with", timeout_s=60)
        job = await jobs.submit("long")
        victim = await wait_until(lambda: _progress(jobs, job.job_id), "the job to run")
        os.kill(int(victim["message"]), signal.SIGKILL)
        done = await jobs.wait(job.job_id)
        assert (done.status, done.result in {first.pid, second.pid}) == ("done", True)
        ends = [event async for event in jobs.events(job.job_id) if event.ends_job]
        assert len(ends) == 1


async def _progress(jobs: AsyncClient, job_id: str) -> dict[str, str]:
    return cast("dict[str, str]", (await jobs.get(job_id)).progress)


async def test_a_photo_is_made_fit_to_publish(tmp_path: Path) -> None:
    source, target, steps = tmp_path / "photo.png", tmp_path / "photo.webp", list[Step]()
    source.write_bytes(images.png(images.quarters()))
    async with PhotoPool(PoolLimits(workers=1), PhotoOptions(detect=())) as pool:
        photo = await pool.process(source, target, on_step=steps.append)
    assert target.stat().st_size == photo.file_size
    assert steps == ["validate", "decode", "detect", "hide", "encode"]


async def test_a_prediction_turns_a_photo_into_one_picture(
    moto: BucketConfig, cog_url: str, fresh: Fresh
) -> None:
    bucket = replace(moto, bucket=fresh("tasks"))
    make_bucket(bucket)
    with Site(bucket, cog_url) as site:
        photo = site.photo()
        await site.flow.submit(photo)
        await wait_until(lambda: site.chat.pictures(photo.chat_id), "the picture in the chat")
        assert len(site.paid(photo)) == 1
