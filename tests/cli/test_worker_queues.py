"""The queues and schedules of an App, whichever module a worker is started with (J-52, J-53)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import cast

from jobwire.cli.exits import Exit
from jobwire.local import LocalValkey
from jobwire.systems.jobs.contract import StreamsKeys
from tests.cli.runner import clean_env
from tests.support import Plain, Program, clause, wait_until_sync

KEYS = StreamsKeys()
SHOP = """
from jobwire import App, Context

app = App()

@app.cron("0 3 * * *", payload={"kind": "full"})
@app.handler("report", queue="reports", timeout_s=60, retries=3)
async def report(ctx: Context) -> str:
    return ctx.payload["kind"]

@app.handler("mail")
@app.cron("0 4 * * *")
async def send(ctx: Context) -> str:
    return "sent"

@app.cron("@daily", tz="Europe/Berlin", payload={"n": 1})
@app.handler("render", queue="films", wire="bullmq")
async def render(ctx: Context) -> None: ...

@app.cron("@hourly")
async def tidy(ctx: Context) -> None: ...
"""
NIGHTLY = "from shop import app\n"


def start(valkey: LocalValkey, folder: Path, app: str, *options: str) -> Program:
    program = Program(
        *("-m", "jobwire", "worker", app, *options),
        env=clean_env(JOBWIRE_VALKEY_URL=valkey.url),
        cwd=folder,
    )
    program.wait_for_line("worker with", timeout_s=60)
    return program


def jobs(plain: Plain) -> dict[str, dict[str, str]]:
    """The jobs of the Streams wire by task."""
    ids = cast("list[str]", plain.zrange(KEYS.index(), 0, -1))
    found = [cast("dict[str, str]", plain.hgetall(KEYS.job(job_id))) for job_id in ids]
    return {job["task"]: job for job in found}


@clause("J-52", "J-53")
def test_j53_queue_and_schedules_are_those_of_the_app_and_not_of_the_command(
    valkey: LocalValkey, plain: Plain, tmp_path: Path
) -> None:
    """Of a fleet that was down for two days; one of its jobs waits in a queue that is named after
    the argument of the command, as in earlier releases."""
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "nightly.py").write_text(NIGHTLY)
    long_ago_ms = int(time.time() * 1000) - 2 * 86_400_000
    plain.hset(KEYS.cron("report"), "UTC 0 3 * * *", f"{long_ago_ms} {long_ago_ms}")
    plain.hset(
        KEYS.job("old"),
        mapping={"job_id": "old", "task": "mail", "payload": "{}", "queue": "nightly"},
    )
    plain.xadd(KEYS.named_queue("nightly"), {"job_id": "old", "task": "mail", "payload": "{}"})
    plain.sadd(KEYS.queues, "nightly")
    with start(valkey, tmp_path, "nightly:app") as program:
        wait_until_sync(
            lambda: plain.hget(KEYS.job("old"), "status") == "done", "the old job to run"
        )
        wait_until_sync(lambda: jobs(plain).get("report", {}).get("status") == "done")
        assert jobs(plain)["report"]["queue"] == "reports"
        assert jobs(plain)["report"]["result"] == '"full"'
        assert plain.smembers(KEYS.queues) == {"shop", "reports", "nightly"}
        (worker,) = cast("list[str]", plain.keys(KEYS.worker("*")))
        tasks = {name[5:] for name in cast("list[str]", plain.hkeys(worker)) if name[:5] == "task:"}
        assert tasks == {"report", "mail", "tidy"}, "no handler beside the one that was decorated"
        entries = cast("list[str]", plain.zrange(KEYS.crons, 0, -1))
        assert {entry.split()[0] for entry in entries} == {"report", "mail", "tidy"}
        wait_until_sync(lambda: plain.zcard("bull:films:repeat") == 1)
        assert plain.zrange("bull:films:repeat", 0, -1) == ["render"]
        scheduler = cast("dict[str, str]", plain.hgetall("bull:films:repeat:render"))
        assert (scheduler["pattern"], scheduler["tz"]) == ("0 0 * * *", "Europe/Berlin")
        (made,) = cast("list[str]", plain.zrange("bull:films:delayed", 0, -1))
        assert plain.hget(f"bull:films:{made}", "data") == '{"n":1}'
        program.terminate()
        program.wait()


@clause("B-8")
def test_b08_a_restart_keeps_the_run_of_a_schedule_that_was_missed(
    valkey: LocalValkey, plain: Plain, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    with start(valkey, tmp_path, "shop:app") as program:
        wait_until_sync(lambda: plain.zcard("bull:films:delayed") == 1)
        program.terminate()
        program.wait()
    (made,) = cast("list[str]", plain.zrange("bull:films:delayed", 0, -1))
    # Time on the server: its due time passes while no worker is there.
    plain.zadd("bull:films:delayed", {made: 1})
    with start(valkey, tmp_path, "shop:app") as program:
        wait_until_sync(lambda: plain.zscore("bull:films:completed", made) is not None)
        assert plain.smembers(KEYS.queues) == {"shop", "reports"}, "no queue of another name"
        program.terminate()
        program.wait()


@clause("J-53")
def test_j53_a_worker_logs_its_tasks_that_are_live_in_another_queue(
    valkey: LocalValkey, plain: Plain, tmp_path: Path
) -> None:
    """Two files with an App each and one task: its jobs wait in the queue of the newer one."""
    text = SHOP.replace('queue="reports", ', "")
    for name in ("shop", "till"):
        (tmp_path / f"{name}.py").write_text(text.replace("App()", f'App("{name}")'))
    with start(valkey, tmp_path, "shop:app") as first:
        with start(valkey, tmp_path, "till:app") as second:
            second.wait_for_line("task=report queue=till others=shop")
            second.terminate()
            second.wait()
        assert "several queues" not in first.output
        first.terminate()
        first.wait()


@clause("J-53", "O-2")
def test_j53_a_worker_reads_the_selected_queues_of_its_app(
    valkey: LocalValkey, plain: Plain, tmp_path: Path
) -> None:
    """Two workers of one App, each with its queues; a name that no handler has is refused."""
    (tmp_path / "shop.py").write_text(SHOP)
    with (
        start(valkey, tmp_path, "shop:app", "-Q", "reports,films") as some,
        start(valkey, tmp_path, "shop:app", "--exclude-queue", "reports,films") as others,
    ):
        assert "; reports → report; films (bullmq) → render" in some.output
        assert "; shop → mail, tidy" in others.output
        registered: set[tuple[str, frozenset[str]]] = set()
        for key in cast("list[str]", plain.keys(KEYS.worker("*"))):
            fields = cast("dict[str, str]", plain.hgetall(key))
            tasks = frozenset(name[5:] for name in fields if name[:5] == "task:")
            registered.add((fields["queues"], tasks))
        assert registered == {
            ("reports", frozenset({"report"})),
            ("shop", frozenset({"mail", "tidy"})),
        }
        for program in (some, others):
            program.terminate()
            program.wait()
    env = clean_env(JOBWIRE_VALKEY_URL=valkey.url)
    for option, expected in (
        (
            "--queue=reprots",
            "no handler has the queue 'reprots'; queues of the App: films, reports, shop",
        ),
        ("--exclude-queue=shop,reports,films", "no queue of the App is left"),
    ):
        refused = Program("-m", "jobwire", "worker", "shop:app", option, env=env, cwd=tmp_path)
        assert refused.wait() == Exit.USAGE
        assert expected in refused.output


@clause("B-21")
def test_b21_signals_pause_and_resume_a_worker(
    valkey: LocalValkey, plain: Plain, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    with start(valkey, tmp_path, "shop:app", "-Q", "films,reports") as program:
        program.pause()
        program.wait_for_line("; no new jobs")
        wait_until_sync(lambda: plain.zcard("bull:films:repeat") == 1)
        plain.hset("bull:films:1", mapping={"name": "render", "data": "{}", "opts": "{}"})
        plain.lpush("bull:films:wait", "1")
        plain.zadd("bull:films:marker", {"0": 0})
        program.resume()
        program.wait_for_line("resumed; takes jobs again")
        wait_until_sync(lambda: plain.zcard("bull:films:completed") == 1, "the job to run")
        lines = program.lines
        ended = next(at for at, line in enumerate(lines) if "task=render" in line)
        assert ended > next(at for at, line in enumerate(lines) if "resumed; " in line)
