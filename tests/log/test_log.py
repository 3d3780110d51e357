"""One logging set-up for every program: fields, escaping, levels."""

from __future__ import annotations

import ast
import asyncio
import contextvars
import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobwire import log
from jobwire.log import LoggingSettings, bind, component, setup
from tests.support import clause

SOURCE = Path(log.__file__).parent
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    """A stream to log to; the set-up of the test run comes back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    # Removed, so that `setup` does not close handlers of others.
    for handler in handlers:
        root.removeHandler(handler)
    yield io.StringIO()
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)


def as_json(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


@clause("T-11")
def test_a_json_line_has_time_logger_level_and_message(out: io.StringIO) -> None:
    setup("gateway", LoggingSettings(format="json"), out)
    component("valkey").warning("lost %s", "it", extra={"address": "h:1"})
    (line,) = as_json(out)
    assert line.pop("ts").endswith("Z")
    assert line == {
        "level": "warning",
        "service": "gateway",
        "logger": "jobwire.valkey",
        "message": "lost it",
        "address": "h:1",
    }


@clause("T-11")
def test_a_text_line_has_the_same_fields(out: io.StringIO) -> None:
    setup("worker", LoggingSettings(), out)
    component("loop").info("took it", extra={"slots": 4})
    (line,) = out.getvalue().splitlines()
    assert line.endswith("INFO     worker loop: took it  slots=4")


@clause("T-11")
def test_log_lines_of_users_have_the_jobs_id(out: io.StringIO) -> None:
    setup("worker", LoggingSettings(format="json"), out)
    handler_log = logging.getLogger("users.handler")

    def run_job() -> None:
        bind(job_id="j-1")
        handler_log.info("inside")

    contextvars.copy_context().run(run_job)
    handler_log.info("outside")
    inside, outside = as_json(out)
    assert inside["job_id"] == "j-1"
    assert "job_id" not in outside


@clause("T-11")
async def test_the_jobs_id_follows_into_tasks_and_threads(out: io.StringIO) -> None:
    setup("worker", LoggingSettings(format="json"), out)

    async def job(name: str) -> None:
        bind(job_id=name)
        await asyncio.sleep(0)
        async with asyncio.TaskGroup() as group:
            group.create_task(later(name))
        await asyncio.to_thread(logging.getLogger("t").info, name)

    async def later(name: str) -> None:
        logging.getLogger("t").info(name)

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(job(f"j-{number}"))
    lines = as_json(out)
    assert len(lines) == 10
    assert all(line["job_id"] == line["message"] for line in lines)


@clause("T-11")
@pytest.mark.parametrize("format_", ["json", "text"])
def test_a_message_cannot_forge_a_log_line(out: io.StringIO, format_: Any) -> None:
    setup("gateway", LoggingSettings(format=format_), out)
    evil = 'x\n2026-01-01 ERROR forged\r\n\x1b[2J\x85\u2028"}\ud800'
    component("a").info("got %s", evil, extra={"field": evil})
    assert len(out.getvalue().splitlines()) == 1
    assert "\x1b" not in out.getvalue()


@clause("T-11")
def test_a_traceback_is_kept_and_cannot_forge_a_line(out: io.StringIO) -> None:
    setup("gateway", LoggingSettings(), out)
    try:
        raise ValueError("first\n2026-01-01T00:00:00.000Z INFO forged")
    except ValueError:
        component("a").exception("broke")
    first, *rest = out.getvalue().splitlines()
    assert first.endswith("broke")
    assert any("ValueError: first" in line for line in rest)
    assert all(line.startswith("    ") for line in rest)


@clause("T-11")
def test_anything_can_be_logged_as_json(out: io.StringIO) -> None:
    setup("gateway", LoggingSettings(format="json"), out)
    cycle: list[object] = []
    cycle.append(cycle)
    component("a").info("odd", extra={"huge": 2**70, "thing": object(), "cycle": cycle})
    (line,) = as_json(out)
    assert line["message"] == "odd"


@clause("T-11")
@pytest.mark.parametrize(
    ("level", "seen"),
    [("debug", 4), ("info", 3), ("warning", 2), ("error", 1), ("critical", 0)],
)
def test_the_level_decides_what_is_written(out: io.StringIO, level: Any, seen: int) -> None:
    setup("gateway", LoggingSettings(level=level), out)
    logger = component("a")
    for say in (logger.debug, logger.info, logger.warning, logger.error):
        say("line")
    assert len(out.getvalue().splitlines()) == seen


@clause("T-11")
@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (LoggingSettings(level="loud"), "logging.level: 'loud' is not a level"),  # pyright: ignore[reportArgumentType] - the fault
        (LoggingSettings(format="xml"), "logging.format: 'xml' is not a format"),  # pyright: ignore[reportArgumentType] - the fault
    ],
)
def test_an_unknown_level_or_format_is_refused(settings: LoggingSettings, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        setup("gateway", settings)


@clause("T-11", "O-2")
@pytest.mark.parametrize(
    ("colors", "no_color", "terminal", "coloured"),
    [
        (True, "", True, True),
        (True, "", False, False),
        (True, "1", True, False),
        (False, "", True, False),
    ],
)
def test_colour_only_on_a_terminal_without_no_color(
    out: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
    *,
    colors: bool,
    no_color: str,
    terminal: bool,
    coloured: bool,
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    stream = Terminal() if terminal else out
    setup("gateway", LoggingSettings(colors=colors), stream)
    component("a").info("line")
    assert ("\x1b[" in stream.getvalue()) is coloured


@clause("T-11")
def test_a_second_setup_replaces_the_first(out: io.StringIO) -> None:
    second = io.StringIO()
    setup("one", LoggingSettings(), out)
    setup("two", LoggingSettings(), second)
    component("a").info("line")
    assert out.getvalue() == ""
    assert "two a: line" in second.getvalue()


@clause("T-11")
def test_logs_go_to_stderr_and_not_to_stdout() -> None:
    source = "from jobwire import log; log.setup('p'); log.component('a').info('talk'); print('hi')"
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "hi\n"
    assert done.stderr.endswith("p a: talk\n")


@clause("T-11")
def test_fields_bound_in_a_task_stay_in_that_task(out: io.StringIO) -> None:
    setup("gateway", LoggingSettings(format="json"), out)

    async def request(name: str) -> None:
        log.bind(request_id=name)
        await asyncio.sleep(0)
        component("a").info(name)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for name in ("r-1", "r-2"):
                group.create_task(request(name))
        component("a").info("none")

    asyncio.run(main())
    assert [line.get("request_id") for line in as_json(out)] == ["r-1", "r-2", None]


@clause("T-11")
@pytest.mark.parametrize("sign", ["\x7f", "\x9b", "\u2028", "\u2029", "\u202e", "\u2066"])
def test_a_json_line_has_no_control_characters(out: io.StringIO, sign: str) -> None:
    """JSON does not escape these: U+009B begins a terminal command."""
    setup("gateway", LoggingSettings(format="json"), out)
    component("jobs").warning("a%sb", sign, extra={f"key{sign}": f"field{sign}"})
    written = out.getvalue()
    assert sign not in written
    assert len(written.splitlines()) == 1
    line = json.loads(written)
    assert (line["message"], line[f"key{sign}"]) == (f"a{sign}b", f"field{sign}")


@clause("T-11")
def test_facts_of_a_line_are_members_in_json_and_one_word_each_in_text(out: io.StringIO) -> None:
    facts = {"queue": "mail", "after_s": 1.5, "error": 'no "route"; retry=1'}
    line = "connect failed queue=%(queue)s after_s=%(after_s)s error=%(error)s; will retry"
    setup("worker", LoggingSettings(), out)
    component("valkey").warning(line, facts)
    logging.getLogger("users").warning("hello %(name)s", {"name": "Ada L"})
    setup("worker", LoggingSettings(format="json"), out)
    component("valkey").warning(line, facts)
    text, users, as_members = out.getvalue().splitlines()
    shown = r'connect failed queue=mail after_s=1.5 error="no \"route\"; retry=1"; will retry'
    assert text.endswith(f"valkey: {shown}")
    assert users.endswith("hello Ada L"), "their lines stay as they are"
    found = json.loads(as_members)
    assert {name: found[name] for name in facts} == facts
    assert found["message"].startswith("connect failed queue=mail")


@clause("T-11")
def test_every_log_line_has_its_facts_by_name() -> None:
    """`event key=value …; what happens next`: no value stands in the text of the event."""
    odd: list[str] = []
    for path in sorted(SOURCE.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            match call:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="_log" | "log"), attr=level),
                    args=[ast.Constant(value=str(line)), *rest],
                ) if level in LEVELS:
                    names = set(re.findall(r"(\w+)=%\(\1\)s", line))
                    given = {
                        key.value
                        for each in rest
                        if isinstance(each, ast.Dict)
                        for key in each.keys
                        if isinstance(key, ast.Constant)
                    }
                    if line.count("%") != len(names) or (names - given and len(rest) != 1):
                        odd.append(f"{path.name}:{call.lineno}: {line}")
                case _:
                    pass
    assert odd == []
