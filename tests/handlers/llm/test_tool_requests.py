"""The task `tool` without a model server: right calls, and no wrong one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Literal

import pytest

from jobwire.handlers.llm import LlmSettings
from jobwire.handlers.llm.literal_calls import NoCall, find_call
from jobwire.handlers.llm.tools import as_tool
from jobwire.job.errors import Fail
from jobwire.worker import App
from tests.handlers.llm.recorder import Bench
from tests.handlers.llm.tool_requests import (
    HELD_OUT,
    LATER,
    TOOLS,
    TUNING,
    ToolRequest,
    delete_file,
    send_message,
)
from tests.support import clause

PAGE = Path(__file__).parents[3] / "docs/tasks.md"


def app_with_tools(*functions: Callable[..., object]) -> Bench:
    """The tasks without a model server; no model is loaded."""
    app = App()
    for function in functions:
        app.tool(function)
    return Bench(LlmSettings(), app)


@clause("K-1")
@pytest.mark.parametrize(
    ("part", "requests"), [("tuning", TUNING), ("held-out", HELD_OUT), ("later", LATER)]
)
async def test_k1_a_tool_is_never_called_by_guess(
    part: str, requests: Sequence[ToolRequest]
) -> None:
    """Also with `run`: a wrong call is one that was made."""
    bench = app_with_tools(*TOOLS.values())
    right: list[ToolRequest] = []
    wrong: list[tuple[ToolRequest, object]] = []
    for request in requests:
        try:
            result = (await bench.run("tool", {"prompt": request.prompt, "run": True})).result
        except Fail as failed:
            found: tuple[Any, Any] = (None if failed.code == "tool_no_match" else failed.code, {})
        else:
            found = (result["tool"], result["arguments"])
        if found == (request.tool, request.arguments):
            right.append(request)
        elif found[0] is not None:
            wrong.append((request, found))
    score = f"{len(right)} of {len(requests)} right, {len(wrong)} wrong calls ({part})"
    assert not wrong
    assert score in PAGE.read_text(), (score, [r for r in requests if r not in right])


@clause("K-1")
async def test_k1_the_reason_says_what_to_write() -> None:
    bench = app_with_tools(delete_file, send_message)
    for prompt, reason in {
        "Is it safe to delete /etc/passwd?": "the request is a question",
        "Delete everything except notes.txt": "does not begin with the name of a tool",
        "Delete file notes.txt unless it is open": r"'unless' is not part of a call of delete_file",
        "Delete the file": r'no value for delete_file\(name=…\).* delete_file\(name="text"\)',
        "delete_file(name=a.txt, name=b.txt)": r"two values for delete_file\(name=…\)",
        "delete_file(name=a.txt": "closing parenthesis",
        "delete_file(name=…)": "'…' is not part of",
        'Send message "Bob" "Hello"': "Bob may be to or text: write to=…",
        "Delete file 1,000": "1,0 may be one number or two",
    }.items():
        with pytest.raises(Fail, match=reason) as failed:
            await bench.run("tool", {"prompt": prompt})
        assert failed.value.code == "tool_no_match"


@clause("K-1")
async def test_k1_without_a_server_a_call_is_shown_and_run_only_on_demand() -> None:
    ran: list[str] = []

    def charge(card: str) -> str:
        """Charge a card."""
        ran.append(card)
        return "charged"

    bench = app_with_tools(charge)
    shown = await bench.run("tool", {"prompt": 'charge "4711"'})
    assert shown.result == {
        "tool": "charge",
        "arguments": {"card": "4711"},
        "chosen_by": "request",
        "score": None,
        "ran": False,
        "output": None,
        "usage": None,
        "model": "",
        "confirm": False,
    }
    assert shown.of("tool_call") == [{"name": "charge", "arguments": {"card": "4711"}}]
    assert (shown.of("tool_result"), ran) == ([], [])
    result = (await bench.run("tool", {"prompt": 'charge "4711"', "run": True})).result
    assert (result["ran"], result["output"], ran) == (True, "charged", ["4711"])


@clause("K-1")
async def test_k1_a_request_that_two_tools_fit_calls_neither() -> None:
    def send(file_name: str) -> None:
        """Send a file."""

    def send_file(name: str) -> None:
        """Send a file as well."""

    def send_(name: str) -> None:
        """Send anything."""

    bench = app_with_tools(send, send_file, send_)
    with pytest.raises(Fail, match="may be a call of send and send_"):
        await bench.run("tool", {"prompt": "Send a.txt"})
    result = (await bench.run("tool", {"prompt": "Send file a.txt"})).result
    assert result["tool"] == "send_file"


@clause("K-1")
async def test_k1_a_tool_that_is_named_twice_is_one() -> None:
    """Regression: a request that fits one tool seemed to fit two."""
    bench = app_with_tools(delete_file)
    payload = {"prompt": "delete_file notes.txt", "tools": ["delete_file", "delete_file"]}
    assert (await bench.run("tool", payload)).result["arguments"] == {"name": "notes.txt"}


def _is_call(request: str) -> bool:
    try:
        find_call([as_tool("delete_file", delete_file)], request)
    except NoCall:
        return False
    return True


@clause("K-1")
def test_k1_a_word_with_an_underscore_inside_is_a_name() -> None:
    for letters in (each for size in (1, 2, 3, 4) for each in product("b1_-é", repeat=size)):
        word = "".join(letters)
        is_name = "-" not in word and word[0] != "1" and "_" in word[:-1]
        assert _is_call(f"delete_file {word}") is is_name, word


@clause("K-1", "O-6")
def test_k1_a_long_word_is_read_once() -> None:
    """Regression: the work grew with the square of the length, here to minutes."""
    assert not _is_call("delete_file " + "_" * 200_000 + "!x")


@clause("J-50")
async def test_j50_a_tool_that_asks_for_confirmation() -> None:
    ran: list[str] = []
    app = App()

    @app.tool(confirm=True)
    def delete_file(name: str, mode: Literal["now", "later"] = "now") -> str:
        """Delete a file by its name."""
        ran.append(name)
        return "deleted"

    bench = Bench(LlmSettings(), app)
    asked = {"prompt": "Delete the file a.txt", "tools": ["delete_file"], "run": True}
    first = (await bench.run("tool", asked)).result
    assert (first["ran"], first["confirm"], first["output"]) == (False, True, None)
    assert ran == []
    confirmed = {**asked, "arguments": first["arguments"], "confirmed": True}
    second = (await bench.run("tool", confirmed)).result
    assert (second["ran"], second["output"], second["chosen_by"]) == (True, "deleted", "caller")
    assert ran == [first["arguments"]["name"]]


@clause("J-50")
@pytest.mark.parametrize(
    "raised", [SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration, BaseException]
)
async def test_j50_a_started_tool_never_runs_again(raised: type[BaseException]) -> None:
    app, ran = App(), []

    @app.tool
    def charge() -> None:
        """Charge a card."""
        ran.append(1)
        raise raised

    bench = Bench(LlmSettings(), app)
    with pytest.raises(Fail, match=raised.__name__) as failed:
        await bench.run("tool", {"prompt": "Charge", "run": True})
    assert failed.value.code == "tool_failed"
    assert ran == [1]
