"""The job commands with a real gateway and worker, in a pipe and on a terminal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast
from zoneinfo import ZoneInfo

import httpx
import msgspec
import pytest

from jobwire import AsyncClient
from jobwire.api.jobs import JobLine, JobPage
from jobwire.cli.exits import CliExit, Exit
from jobwire.cli.job_ids import resolve
from jobwire.cli.main import main
from jobwire.cli.program import cli_exit
from jobwire.client.errors import from_problem
from jobwire.local import free_port
from tests.cli.runner import clean_env
from tests.cli.terminal import Terminal
from tests.fleet.runner import Fleet
from tests.support import clause, wait_until_sync

EVIL = "\x1b[31mred\x1b]0;title\x07 \x9b2J \u202e\u2028 \x08\x7f <&[bold]x[/bold]"
UNSAFE = ("\x1b[31m", "\x1b]0", "\x07", "\x9b", "\u202e", "\u2028", "\x08", "\x7f")


@pytest.fixture
def run(
    fleet: Fleet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Run:
    for name in set(os.environ) - set(clean_env()):
        monkeypatch.delenv(name)
    monkeypatch.setenv("JOBWIRE_URL", fleet.url)
    monkeypatch.chdir(tmp_path)
    return Run(fleet, tmp_path, capfd)


class Run:
    """`run("submit", "count")`: run a command to its end, in a pipe.

    It runs in this process, since starting Python takes most of the time of a command. Commands on
    a terminal are processes.
    """

    def __init__(self, fleet: Fleet, cwd: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.fleet = fleet
        self.cwd = cwd
        self._capfd = capfd

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        self._capfd.readouterr()
        code = main(arguments)
        captured = self._capfd.readouterr()
        return subprocess.CompletedProcess(arguments, code, captured.out, captured.err)

    def terminal(self, *arguments: str, columns: int = 80, **env: str) -> Terminal:
        return Terminal(*arguments, cwd=self.cwd, env={**self.fleet.env, **env}, columns=columns)


def _lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


# ── in a pipe ────────────────────────────────────────────────────────────────────────────────────


@clause("O-2")
def test_o2_submit_follow_in_a_pipe_prints_events_then_the_job(run: Run) -> None:
    done = run("submit", "count", '{"to": 2}', "--follow")
    assert (done.returncode, done.stderr) == (Exit.OK, "")
    *events, job = _lines(done)
    assert [event["type"] for event in events] == [
        *("queued", "running", "progress", "progress", "done")
    ]
    assert (job["status"], job["result"]) == ("done", {"counted": 2})


@clause("O-2")
def test_o2_each_command_in_a_pipe(run: Run) -> None:
    made = run("submit", "fail", "{}")
    (job,) = _lines(made)
    job_id = str(job["job_id"])
    watched = run("watch", job_id)
    assert watched.returncode == Exit.JOB_FAILED
    assert [line.get("type") for line in _lines(watched)][-2] == "error"
    shown = run("job", job_id)
    (whole,) = _lines(shown)
    assert shown.returncode == Exit.OK
    assert whole["error"] == {
        "code": "no_luck",
        "message": "it was not to be",
        "retryable": False,
        "attempt": 1,
    }
    (retried,) = _lines(run("retry", job_id))
    assert retried["retry_of"] == job_id
    listed = run("list", "--task", "fail", "--limit", "2")
    assert job_id in {line["job_id"] for line in _lines(listed)}
    (snapshot,) = _lines(run("top"))
    assert {"now", "hour", "minutes", "workers"} <= set(snapshot)


@clause("O-2")
def test_o2_states_are_given_in_the_words_that_are_printed(run: Run) -> None:
    (*_, job) = _lines(run("submit", "fail", "{}", "--follow"))
    for word in ("failed", "error"):
        listed = _lines(run("list", "--status", word))
        assert job["job_id"] in {line["job_id"] for line in listed}
    assert run("list", "--status", "waiting").returncode == Exit.OK


def test_a_payload_is_json_text_a_file_or_stdin(run: Run, tmp_path: Path) -> None:
    (tmp_path / "body.json").write_text('{"big": 123456789012345678901234567890, "f": 1.10}')
    (job,) = _lines(run("submit", "echo", "@body.json"))
    assert job["payload"] == {"big": 123456789012345678901234567890, "f": 1.1}
    raw = run("job", str(job["job_id"])).stdout
    assert "123456789012345678901234567890" in raw
    (text,) = _lines(run("submit", "say", "hello you"))
    assert text["payload"] == {"text": "hello you"}, "by the task's schema"
    (chat,) = _lines(run("submit", "chat", "hello"))
    assert chat["payload"] == {"prompt": "hello"}
    piped = subprocess.run(
        ["sh", "-c", "echo 'from a pipe' | \"$0\" -m jobwire submit say -", sys.executable],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert json.loads(piped.stdout)["payload"] == {"text": "from a pipe"}
    assert run("cancel", str(chat["job_id"])).returncode == Exit.OK


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["submit", "count", "{"], "the payload is not valid JSON"),
        (["submit", "count", "[1]"], "a payload is a JSON object"),
        (["submit", "count", "three"], "the task 'count' takes no plain text; give JSON: "),
        (["submit", "count", "@missing.json"], "missing.json: No such file or directory"),
        (["submit", "count", "--timeout", "0"], "0.0 is not in the range"),
        (["cancel", "a", "b"], "2 jobs, and no terminal to confirm on; add --yes"),
        (["list", "--status", "lost"], "is not one of"),
        (["job", "ab"], "'ab' is too short; give at least 4 characters"),
        (["submit", "count", "--delay", "soon"], "--delay: 'soon' is not a duration; write 90, 5m"),
        (["submit", "count", "--at", "soon"], "--at: 'soon' is not a time; write 18:30 or 2030"),
        (["submit", "count", "--at", "2001-01-01T00:00"], "--at: 2001-01-01T00:00 is in the past"),
        (["submit", "count", "--at", "18:30", "--delay", "1"], "--delay and --at exclude each"),
        (["submit", "count", "{}", "--ttl", "800h"], "--ttl: '800h' is longer than 30 days"),
        (["submit", "count", "{}", "--folow"], "Did you mean '--follow'?\n"),
    ],
)
@clause("O-2")
def test_o2_a_usage_error_is_one_line(run: Run, arguments: list[str], line: str) -> None:
    done = run(*arguments)
    assert done.returncode == Exit.USAGE
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1


@clause("O-2")
def test_o2_submit_options_and_the_first_characters_of_an_id(run: Run) -> None:
    options = ("--delay", "1h", "--max-attempts", "3", "--ttl", "2d")
    (job,) = _lines(run("submit", "count", *options))
    assert (job["status"], job["max_attempts"], job["ttl_s"]) == ("queued", 3, 172_800)
    job_id = str(job["job_id"])
    for given in (job_id[:13], f"{job_id[:6]}…{job_id[-4:]}", f"{job_id[:6]}...{job_id[-4:]}"):
        (found,) = _lines(run("job", given))
        assert (found["job_id"], found["status"]) == (job_id, "queued")
    (canceled,) = _lines(run("cancel", job_id[:13]))
    assert canceled["job_id"] == job_id
    (retried,) = _lines(run("retry", job_id[:13]))
    assert retried["retry_of"] == job_id
    in_an_hour = f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%MZ}"
    (later,) = _lines(run("submit", "count", "--at", in_an_hour))
    assert _lines(run("job", str(later["job_id"])))[0]["status"] == "queued"
    assert run("watch", job_id[:13]).returncode == Exit.JOB_FAILED
    absent = run("job", "no-such-job")
    assert absent.returncode == Exit.NOT_FOUND
    assert (
        "no such job, nor one whose id begins with 'no-such-job' among the newest" in absent.stderr
    )


@clause("O-2")
async def test_o2_the_first_characters_of_several_ids() -> None:
    lines = [
        JobLine(job_id=f"abcd{n}", task="t", status="done", created_ts=0, updated_ts=0)
        for n in range(7)
    ]
    page = msgspec.json.encode(JobPage(lines, 7, 7, None))

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/jobs":
            return httpx.Response(200, content=page)
        return httpx.Response(404, json={"code": "job_not_found", "status": 404})

    client = AsyncClient("http://localhost:1")
    client._http = httpx.AsyncClient(  # pyright: ignore[reportPrivateUsage] - the place of its transport
        transport=httpx.MockTransport(answer), base_url="http://localhost:1"
    )
    with pytest.raises(CliExit, match=r"matches several jobs: abcd0, .*abcd4; give more"):
        await resolve(client, "abcd")


@clause("J-52")
def test_j52_cron_list_shows_the_next_run(run: Run) -> None:
    def listed() -> list[dict[str, object]]:
        return _lines(run("cron", "list"))

    (entry,) = wait_until_sync(listed, "the worker to enroll")
    assert (entry["name"], entry["schedule"]) == ("leap day", "0 0 29 2 *")
    assert (entry["tz"], entry["last_ts"], entry["live"]) == ("Europe/Berlin", None, True)
    due = datetime.fromtimestamp(cast("int", entry["next_ts"]) / 1000, ZoneInfo("Europe/Berlin"))
    assert (due.month, due.day, due.hour) == (2, 29, 0)
    with run.terminal("cron", "list", columns=50, NO_COLOR="1") as terminal:
        assert terminal.wait() == Exit.OK
    assert "leap day\n  schedule: 0 0 29 2 * Europe/Berlin" in terminal.screen.replace("\r", "")


@clause("O-2")
def test_o2_the_shell_completes_tasks_and_ids(run: Run) -> None:
    (job,) = _lines(run("submit", "count"))
    job_id = str(job["job_id"])
    for typed, offered in (("submit cou", "plain,count"), (f"job {job_id[:8]}", f"plain,{job_id}")):
        words = f"jobwire {typed}"
        env = {"_JOBWIRE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "2"}
        done = subprocess.run(
            [Path(sys.executable).with_name("jobwire")],
            env=clean_env(**env, **run.fleet.env),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert offered in done.stdout.splitlines(), done.stderr


@clause("O-2", "O-6")
def test_o2_a_refusal_names_the_variable_of_the_key() -> None:
    for status, code in ((401, "unauthorized"), (403, "forbidden")):
        refused = cli_exit(from_problem({"code": code, "status": status, "detail": "no"}))
        assert "JOBWIRE_API_KEY" in refused.line
        assert refused.code == Exit.REFUSED
    detail = "send an API key: `Authorization: Bearer jw_…`"
    refused = cli_exit(from_problem({"code": "unauthorized", "status": 401, "detail": detail}))
    assert "Bearer" not in refused.line


@clause("O-2")
def test_o2_exit_codes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("job", "no-such-job").returncode == Exit.NOT_FOUND
    assert run("watch", "no-such-job").returncode == Exit.NOT_FOUND
    refused = run("submit", "no-such-task", "{}")
    assert refused.returncode == Exit.REFUSED
    assert refused.stderr.strip().endswith("(unknown_task)")
    assert re.search(r"known tasks: .*chat, code, count, crash, echo", refused.stderr)
    near = run("submit", "cuont", "three")
    assert (near.returncode, "did you mean 'count'?" in near.stderr) == (Exit.REFUSED, True)
    first = run("submit", "count", '{"to": 1}', "--idempotency-key", "once")
    again = run("submit", "count", '{"to": 1}', "--idempotency-key", "once")
    assert _lines(first)[0]["job_id"] == _lines(again)[0]["job_id"]
    other = run("submit", "count", '{"to": 2}', "--idempotency-key", "once")
    assert other.returncode == Exit.REFUSED
    late = run("submit", "forever", "{}", "--follow", "--timeout", "0.5")
    assert late.returncode == Exit.TIMED_OUT
    assert "it continues" in late.stderr
    job_id = str(_lines(run("list", "--task", "forever", "--limit", "1"))[0]["job_id"])
    assert run("cancel", job_id).returncode == Exit.OK
    monkeypatch.setenv("JOBWIRE_URL", f"http://127.0.0.1:{free_port()}")
    gone = run("list")
    assert gone.returncode == Exit.UNREACHABLE
    assert "Is it running? To start everything: jobwire up" in gone.stderr
    monkeypatch.setenv("JOBWIRE_URL", "localhost")
    assert run("list").returncode == Exit.USAGE
    monkeypatch.delenv("JOBWIRE_URL")
    unknown = run("list")
    assert unknown.returncode == Exit.UNREACHABLE
    assert "no program is known" in unknown.stderr


@clause("O-2")
def test_o2_a_full_queue_is_exit_75(
    run: Run, own_fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_fleet.start_gateway(JOBWIRE_JOBS_MAX_QUEUE="1")
    monkeypatch.setenv("JOBWIRE_URL", own_fleet.url)
    assert run("submit", "chat", "hello").returncode == Exit.OK
    full = run("submit", "chat", "hello")
    assert full.returncode == Exit.FULL
    assert "try again in" in full.stderr


# ── on a terminal ────────────────────────────────────────────────────────────────────────────────


@clause("O-2")
def test_o2_a_terminal_shows_tokens_and_the_outcome(run: Run) -> None:
    with run.terminal("submit", "say", "hello you out there", "--follow") as terminal:
        assert terminal.wait() == Exit.OK
    assert "hello you out there" in terminal.screen
    assert "done" in terminal.screen
    assert "waited" in terminal.screen
    assert '{"' not in terminal.screen, "the tokens were printed; the result is not printed again"


@clause("O-2")
def test_o2_ctrl_c_ends_the_display_and_not_the_job(run: Run) -> None:
    with run.terminal("submit", "forever", "--follow") as terminal:
        terminal.until("begun")
        assert "running" in terminal.screen
        assert "1 %" in terminal.screen
        terminal.interrupt()
        assert terminal.wait() == Exit.INTERRUPTED
    assert "The job continues. Follow it again: " in terminal.screen
    job_id = terminal.screen.rpartition(" watch ")[2].split()[0]
    (job,) = _lines(run("job", job_id))
    assert job["status"] == "running"
    with run.terminal("watch", job_id) as watching:
        watching.until("begun")
        assert run("cancel", job_id).returncode == Exit.OK
        assert watching.wait() == Exit.JOB_FAILED
    assert "canceled" in watching.screen


@clause("J-55")
def test_j55_a_terminal_shows_why_a_job_failed(run: Run) -> None:
    with run.terminal("submit", "crash", "--follow", NO_COLOR="1") as terminal:
        assert terminal.wait() == Exit.JOB_FAILED
    first, *lines = terminal.screen.partition("Traceback")[2].splitlines()
    assert first == " (most recent call last):"
    assert "tests/fleet/app.py" in lines[0], "the user's own frame is the first"
    assert "ZeroDivisionError: division by zero" in lines
    assert "handler_error: ZeroDivisionError: division by zero" in lines[-1]
    (job,) = _lines(run("list", "--task", "crash", "--limit", "1"))
    (whole,) = _lines(run("job", str(job["job_id"])))
    assert whole["exception_type"] == "ZeroDivisionError"
    with run.terminal("job", str(job["job_id"]), NO_COLOR="1") as shown:
        assert shown.wait() == Exit.OK
    assert "\n    _divide(1, 0)" in shown.screen.replace("\r", "")
    assert f"queue      {whole['queue']}" in shown.screen
    assert "submitted  " in shown.screen


@clause("O-2")
def test_o2_a_narrow_terminal_shows_whole_ids(run: Run) -> None:
    (job,) = _lines(run("submit", "count", '{"to": 1}'))
    with run.terminal("list", "--task", "count", "--limit", "1", columns=40) as terminal:
        assert terminal.wait() == Exit.OK
    assert f"\r\n  {job['job_id']}\r\n" in terminal.screen
    assert max(map(len, terminal.screen.partition("Scanned")[0].splitlines())) <= 40


@clause("O-2")
def test_o2_quiet_and_no_progress(run: Run) -> None:
    with run.terminal("submit", "shaky", "--follow", "--quiet", NO_COLOR="1") as quiet:
        assert quiet.wait() == Exit.OK
    assert "failed" not in quiet.screen
    assert "done" not in quiet.screen
    with run.terminal("submit", "shaky", "--follow", "--no-progress", NO_COLOR="1") as plain:
        assert plain.wait() == Exit.OK
    assert "\x1b" not in plain.screen, "nothing is redrawn"
    assert "attempt 2 failed: not yet" in plain.screen
    made = run("submit", "count", "{}", "-q")
    assert (made.returncode, made.stderr) == (Exit.OK, "")
    # In a shell's $(…) too it is the id, and the whole job with --json.
    assert run("job", made.stdout.strip()).returncode == Exit.OK
    (whole,) = _lines(run("submit", "count", "{}", "-q", "--json"))
    assert whole["task"] == "count"


@clause("O-2")
def test_o2_a_refused_job_does_not_stop_the_next_ones(run: Run) -> None:
    ended = str(_lines(run("submit", "count", "{}", "--follow"))[-1]["job_id"])
    waits = str(_lines(run("submit", "forever", "{}"))[0]["job_id"])
    done = run("cancel", "--yes", "no-such-job", ended, waits)
    assert done.returncode == Exit.NOT_FOUND, "that of the first refusal"
    first, second = done.stderr.splitlines()
    assert first.startswith("jobwire: no-such-job: there is no such job")
    assert second.startswith(f"jobwire: {ended}: ")
    assert second.endswith("(already_finished)")
    assert _lines(done)[0]["job_id"] == waits
    failed = str(_lines(run("submit", "fail", "{}", "--follow"))[-1]["job_id"])
    again = run("retry", ended, failed)
    assert (again.returncode, len(_lines(again))) == (Exit.REFUSED, 1)


@clause("O-2")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("submit", "chat"), "chat needs a payload: "),
        (("submit", "chat", "hello", "--ttl", "0"), "--ttl: '0' must be at least one second"),
    ],
)
def test_o2_a_submission_that_cannot_be_meant_is_refused(
    run: Run, arguments: tuple[str, ...], told: str
) -> None:
    refused = run(*arguments)
    assert refused.returncode == Exit.USAGE
    assert told in refused.stderr


def test_a_waiting_job_without_a_worker_prints_a_hint(run: Run) -> None:
    with run.terminal("submit", "chat", "hello", "--follow", "--timeout", "20") as terminal:
        terminal.until("queue default: no worker, 1 waiting, since")
        terminal.interrupt()
        assert terminal.wait() == Exit.INTERRUPTED
    job_id = terminal.screen.rpartition(" watch ")[2].split()[0]
    assert run("cancel", job_id).returncode == Exit.OK


@clause("O-2")
def test_o2_no_color_and_a_dumb_terminal(run: Run) -> None:
    with run.terminal("submit", "fail", "--follow", NO_COLOR="1", TERM="dumb") as terminal:
        assert terminal.wait() == Exit.JOB_FAILED
    assert "\x1b" not in terminal.screen
    assert "no_luck: it was not to be" in terminal.screen


@clause("O-2")
@pytest.mark.parametrize("task", ["echo", "fail"])
def test_o2_escape_codes_of_a_job_do_not_reach_the_terminal(run: Run, task: str) -> None:
    payload = json.dumps({"text": EVIL})
    with run.terminal("submit", task, payload, "--follow", NO_COLOR="1") as terminal:
        terminal.wait()
    (newest,) = _lines(run("list", "--task", task, "--limit", "1"))
    job_id = str(newest["job_id"])
    screens = [terminal.screen]
    for arguments in (
        ("job", job_id),
        ("job", job_id, "--json"),
        ("list",),
        ("watch", job_id, "--json"),
    ):
        with run.terminal(*arguments, NO_COLOR="1") as other:
            other.wait()
        screens.append(other.screen)
    for screen in screens:
        assert [unsafe for unsafe in UNSAFE if unsafe in screen] == []
    assert any("[bold]x[/bold]" in screen for screen in screens), "printed as text, not as markup"
    exact = json.loads(run("job", job_id).stdout)
    assert exact["payload"] == {"text": EVIL}, "JSON output is complete"


# ── queues ───────────────────────────────────────────────────────────────────────────────────────


@clause("J-53", "O-2")
def test_j53_queues_are_listed_paused_resumed_and_purged(run: Run) -> None:
    listed = {str(line["name"]): line for line in _lines(run("queue", "ls", "--wire", "streams"))}
    queue = next(name for name, line in listed.items() if name != "default" and line["workers"])
    (paused,) = _lines(run("queue", "pause", queue, "--wire", "streams"))
    assert (paused["queue"], paused["paused"]) == (queue, True)
    try:
        # Other tests of the same fleet leave delayed jobs.
        assert run("queue", "purge", queue, "--yes").returncode == Exit.OK
        (job,) = _lines(run("submit", "count", '{"to": 1}', "--queue", queue))
        assert (job["queue"], job["status"]) == (queue, "queued")
        refused = run("queue", "purge", queue)
        assert refused.returncode == Exit.USAGE
        assert "--yes" in refused.stderr
        (purged,) = _lines(run("queue", "purge", queue, "--yes"))
        assert purged == {"queue": queue, "canceled": 1}
        (ended,) = _lines(run("job", str(job["job_id"])))
        assert ended["status"] == "canceled"
    finally:
        (resumed,) = _lines(run("queue", "resume", queue))
    assert resumed["paused"] is False
    with run.terminal("queue", "ls") as shown:
        shown.until(queue[:20])
        assert shown.wait() == Exit.OK
    unknown = run("queue", "pause", "nowhere")
    assert unknown.returncode == Exit.NOT_FOUND
    assert "queue_not_found" in unknown.stderr
    assert "; see jobwire queue ls (" in unknown.stderr
    no_cron = run("cron", "run", "nothing")
    assert no_cron.returncode == Exit.NOT_FOUND
    assert "there is no such cron entry; see jobwire cron list (" in no_cron.stderr
    spaced = run("submit", "count", '{"to": 1}', "--queue", "a b")
    assert "body /queue: must be 1 to 100 letters, digits" in spaced.stderr
    refused = run("submit", "count", '{"to": 1}', "--queue", "nowhere")
    assert (refused.returncode, "unknown_queue" in refused.stderr) == (Exit.REFUSED, True)
