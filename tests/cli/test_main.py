"""The command line: help, usage errors, exit codes, imports."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from jobwire import __version__
from jobwire.cli import output
from jobwire.cli.exits import MEANINGS, Exit
from jobwire.cli.main import COMMANDS, main
from tests.cli.runner import clean_env, jobwire
from tests.cli.terminal import Terminal
from tests.support import clause


@clause("O-2")
def test_help_lists_every_command_and_exit_status(tmp_path: Path) -> None:
    done = jobwire("--help", cwd=tmp_path)
    assert done.returncode == 0
    for name in COMMANDS:
        assert f"\n  {name} " in done.stdout
    for code, meaning in MEANINGS.items():
        assert str(int(code)) in done.stdout
        assert meaning in done.stdout


@clause("O-2")
def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    source = (
        "import sys; from jobwire.cli.main import main; main(['--help'])\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        timeout=60,
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "click" in loaded
    heavy = {"fastapi", "pydantic", "uvicorn", "rich", "msgspec", "hiredis", "asyncio", "yaml"}
    assert loaded & heavy == set()


@clause("O-2")
@pytest.mark.parametrize("words", [("job",), ("cancel",), ("queue", "job", "mail"), ("submit",)])
def test_o02_an_argument_that_is_not_utf8_is_a_usage_error(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = jobwire(*words, "a\udcff", cwd=tmp_path, env={"JOBWIRE_URL": "http://127.0.0.1:9"})
    assert done.returncode == Exit.USAGE, done.stderr
    assert done.stderr == "jobwire: the argument 'a\\udcff' is not UTF-8\n"


@clause("O-2")
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(name: str, tmp_path: Path) -> None:
    done = jobwire(name, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert f"Usage: jobwire {name}" in done.stdout
    assert "Examples:" in done.stdout or name == "version"


@clause("O-2")
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["confgi"], "jobwire: no such command 'confgi'; did you mean 'config'?"),
        (["zzz"], "jobwire: no such command 'zzz'; see jobwire --help"),
        (["up", "--prot", "1"], "jobwire: No such option"),
        (["key"], "jobwire: Missing argument 'NAME'; see jobwire key --help"),
        (["up", "--port", "http"], "jobwire: --port gateway.port: 'http' is not a whole number"),
        (["--config", "nowhere.yaml", "config"], "jobwire: nowhere.yaml: cannot be read"),
    ],
)
def test_a_wrong_command_is_one_line_and_exit_2(
    arguments: list[str], line: str, tmp_path: Path
) -> None:
    done = jobwire(*arguments, cwd=tmp_path)
    assert done.returncode == Exit.USAGE
    assert done.stderr.startswith(line)
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


@clause("O-2")
def test_jobwire_alone_prints_an_overview(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = jobwire(cwd=tmp_path)
    assert done.returncode == 0
    assert "background jobs with live progress" in done.stdout
    assert "none is running here" in done.stdout
    monkeypatch.chdir(tmp_path)
    assert done.stdout.count(f"\n  {output.program()} ") == 3
    running = jobwire(cwd=tmp_path, env={"JOBWIRE_URL": "http://jobs.example"})
    assert "http://jobs.example (by JOBWIRE_URL)" in running.stdout
    assert running.stdout.count(f"\n  {output.program()} ") == 3
    assert f"{output.program()} submit chat hello --follow" in running.stdout


@clause("O-2")
def test_o2_a_shell_understands_the_commands_that_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the program's path has a blank, too."""
    folder = tmp_path / "a clone"
    folder.mkdir()
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    assert shlex.split(output.program()) == [str(folder / "python"), "-m", "jobwire"]
    (folder / "jobwire").touch()
    assert shlex.split(output.program()) == [str(folder / "jobwire")]
    monkeypatch.chdir(tmp_path)
    assert shlex.split(output.program()) == ["a clone/jobwire"]


@clause("O-2")
def test_the_version_for_people_and_for_programs(tmp_path: Path) -> None:
    assert jobwire("--version", cwd=tmp_path).stdout == f"{__version__}\n"
    assert json.loads(jobwire("version", cwd=tmp_path).stdout)["version"] == __version__


@clause("O-2")
def test_the_shell_can_complete_commands(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("jobwire")
    for typed, offered in (
        ("jobwire do", "plain,doctor"),
        ("jobwire list --status r", "plain,running"),
        ("jobwire nonsense x", ""),
    ):
        env = {
            "_JOBWIRE_COMPLETE": "bash_complete",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(typed.count(" ")),
        }
        done = subprocess.run(
            [program],
            env=clean_env(**env),
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=60,
            check=False,
        )
        assert (done.stdout.strip(), done.stderr) == (offered, "")


def on_a_terminal(*arguments: str, cwd: Path, **env: str) -> str:
    """What a terminal shows."""
    with Terminal(*arguments, cwd=cwd, env=env) as terminal:
        terminal.wait(timeout_s=60)
        return terminal.screen


@clause("O-2")
def test_a_terminal_gets_text_and_colour_and_a_pipe_gets_json(tmp_path: Path) -> None:
    seen = on_a_terminal("doctor", cwd=tmp_path)
    assert "\x1b[32mok" in seen
    assert "{" not in seen
    quiet = on_a_terminal("doctor", cwd=tmp_path, NO_COLOR="1")
    assert "\x1b[" not in quiet
    assert "{" in on_a_terminal("doctor", "--json", cwd=tmp_path)
    piped = jobwire("doctor", cwd=tmp_path).stdout.splitlines()
    assert all(json.loads(line)["check"] for line in piped)


@clause("O-2")
@pytest.mark.parametrize("command", ["config", "doctor"])
def test_o2_a_narrow_terminal_is_not_exceeded(tmp_path: Path, command: str) -> None:
    with Terminal(command, cwd=tmp_path, env={"NO_COLOR": "1"}, columns=60) as terminal:
        terminal.wait(timeout_s=60)
    lines = terminal.screen.replace("\r", "").splitlines()
    assert len(lines) > 5
    # A word is not broken: a path or an address can be copied.
    assert [line for line in lines if len(line) > 60 and " " in line.strip()] == []


@clause("O-2")
def test_an_internal_error_is_one_line_and_a_traceback_with_debug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)

    names: dict[str, object] = {}
    # Compiled here, so that no file of a user is in the traceback.
    exec("def breaks(*_, **__): raise ZeroDivisionError('oh\\nno')", names)
    monkeypatch.setattr("jobwire.settings.load", names["breaks"])
    assert main(["config"]) == Exit.BROKEN
    error = capsys.readouterr().err
    assert error.startswith("jobwire: an internal error of jobwire: ZeroDivisionError: oh no")
    assert len(error.splitlines()) == 1
    assert main(["--debug", "config"]) == Exit.BROKEN
    assert "Traceback" in capsys.readouterr().err
