"""Every behavior of a model's server has its outcome; the table in the documentation is true."""

from __future__ import annotations

import asyncio
from pathlib import Path

from jobwire.handlers.llm import LlmSettings
from jobwire.job.errors import Fail, Retry
from tests.handlers.llm.behaviors import Behavior
from tests.handlers.llm.conftest import KEY
from tests.handlers.llm.failure_behaviors import BEHAVIORS
from tests.handlers.llm.recorder import Bench
from tests.handlers.llm.upstream import Stage
from tests.support import clause

PAGE = Path(__file__).parents[3] / "docs/tasks.md"


async def outcome_of(bench: Bench, behavior: Behavior, stage: Stage) -> tuple[str, str]:
    """The outcome of a job against one behavior, and its text."""
    payload = {"model": behavior.what, "max_tokens": 64, **behavior.payload}
    text = ""
    try:
        done = await bench.run(behavior.task, payload)
    except Fail as failed:
        outcome = failed.code
    except Retry as later:
        outcome = f"{later.code}, later"
    else:
        outcome, result = "done", done.result
        match behavior.task:
            case "plan":
                titles = ", ".join(f'"{step["title"]}"' for step in result["steps"])
                text = f'{{"steps": [{titles}]}}'
            case "code":
                text = result["code"]
            case _:
                text = result["text"]
        if behavior.what.startswith(("reasoning", "`</think>`")):
            assert "Let me" not in text
            assert done.of("reasoning") or done.of("reset")
    requests = len(stage.asked(behavior.what))
    return (outcome if requests == 1 else f"{outcome}, {requests} requests"), text


@clause("J-51", "J-50")
async def test_j51_each_behavior_of_a_server_has_its_outcome() -> None:
    async with Stage({each.what: each.acts for each in BEHAVIORS}) as stage:
        bench = Bench(LlmSettings(base_url=stage.url, model="tester", api_key=KEY))
        found = await asyncio.gather(*(outcome_of(bench, each, stage) for each in BEHAVIORS))
    assert {each.what: outcome for each, (outcome, _) in zip(BEHAVIORS, found, strict=True)} == {
        each.what: each.outcome for each in BEHAVIORS
    }
    assert {
        e.what: text for e, (out, text) in zip(BEHAVIORS, found, strict=True) if "done" in out
    } == {each.what: each.text for each in BEHAVIORS if each.outcome.startswith("done")}


def test_j51_the_table_of_behaviors_is_true() -> None:
    rows = [f"| {each.what} | {_shown(each.outcome)} |" for each in BEHAVIORS]
    table = "\n".join(["| the server | the job |", "|---|---|", *rows])
    assert table in PAGE.read_text(), table
    assert len(BEHAVIORS) >= 60


def _shown(outcome: str) -> str:
    first, *rest = outcome.split(", ")
    code = first if first == "done" else f"`{first}`"
    words = {"later": "the job may be retried"}
    return "; ".join([code, *(words.get(each, each) for each in rest)])
