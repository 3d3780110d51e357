"""The task `tool` with the local model: right calls, and no wrong one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from jobwire.handlers.llm import LlmSettings
from jobwire.handlers.llm.models.factory import Models
from jobwire.job.errors import Fail
from jobwire.worker import App
from tests.handlers.llm.recorder import Bench
from tests.handlers.llm.tool_requests import REQUESTS, TOOLS, ToolRequest
from tests.support import clause

# One process loads the local model for all of these.
pytestmark = pytest.mark.xdist_group("local-model")
NOTHING = ("tool_no_match", "tool_bad_arguments")
PAGE = Path(__file__).parents[3] / "docs/tasks.md"


def local_app(local_models: Models, cache_dir: Path, app: App) -> Bench:
    return Bench(LlmSettings(cache_dir=cache_dir), app, local_models)


@clause("J-50")
async def test_j50_forty_requests_to_tools(local_models: Models, cache_dir: Path) -> None:
    app = App()
    for function in TOOLS.values():
        app.tool(function)
    bench = local_app(local_models, cache_dir, app)
    right: list[ToolRequest] = []
    wrong: list[tuple[ToolRequest, object]] = []
    for request in REQUESTS:
        try:
            result = (await bench.run("tool", {"prompt": request.prompt, "run": False})).result
        except Fail as failed:
            found: tuple[Any, Any] = (None if failed.code in NOTHING else failed.code, {})
        else:
            found = (result["tool"], result["arguments"])
        if found == (request.tool, request.arguments):
            right.append(request)
        elif found[0] is not None:
            wrong.append((request, found))
    assert len(REQUESTS) == 40
    score = f"{len(right)} of 40 right, {len(wrong)} wrong calls"
    assert score in PAGE.read_text(), (score, wrong, [r for r in REQUESTS if r not in right])


@clause("J-50")
async def test_j50_a_tool_that_asks_for_confirmation(local_models: Models, cache_dir: Path) -> None:
    ran: list[str] = []
    app = App()

    @app.tool(confirm=True)
    def delete_file(name: str, mode: Literal["now", "later"] = "now") -> str:
        """Delete a file by its name."""
        ran.append(name)
        return "deleted"

    bench = local_app(local_models, cache_dir, app)
    asked = {"prompt": "Delete the file a.txt", "tools": ["delete_file"]}
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
async def test_j50_a_started_tool_never_runs_again(
    local_models: Models, cache_dir: Path, raised: type[BaseException]
) -> None:
    app, ran = App(), []

    @app.tool
    def charge() -> None:
        """Charge a card."""
        ran.append(1)
        raise raised

    bench = local_app(local_models, cache_dir, app)
    with pytest.raises(Fail, match=raised.__name__) as failed:
        await bench.run("tool", {"prompt": "Charge the card", "tools": ["charge"]})
    assert failed.value.code == "tool_failed"
    assert ran == [1]
