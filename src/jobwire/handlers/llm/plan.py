"""The task `plan`: takes a goal apart into steps, each told as soon as it is whole.

A small model writes a numbered list, held to its form by a grammar; a real one writes JSON. Either
way steps that repeat an earlier one are dropped and counted.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

from jobwire.handlers.context import TaskContext
from jobwire.handlers.llm import grammars, json_extraction
from jobwire.handlers.llm.models import Form, Grammar, JsonForm, Message
from jobwire.handlers.llm.payloads import PlanPayload, PlanResult, PlanStep
from jobwire.handlers.llm.streaming import StepEmitter
from jobwire.handlers.llm.task_deps import TaskDeps
from jobwire.job.errors import Fail

_COUNTS: Final = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
"""A digit in the question finds its way into the plan of a small model."""
_LONGEST_TITLE: Final = 1_000
_OWN_NUMBER: Final = re.compile(r"^\d+[.)] ")
_NUMBERED: Final = re.compile(r"^\s*(?:\d+[.)]|[-*•])\s+(\S.*?)\s*$", re.MULTILINE)
_WHOLE_LINE: Final = re.compile(r"^\d+\. (.+\.)$", re.MULTILINE)


async def plan(ctx: TaskContext, payload: PlanPayload, kit: TaskDeps) -> PlanResult:
    """The steps to a goal."""
    led = kit.models.chat().led
    form, told = (_as_list(payload), _lines) if led else (_as_json(payload), _strings)
    teller = StepEmitter(ctx, lambda text: unique([*map(_title, told(text))])[: payload.max_steps])
    answer = await kit.answer(ctx, payload, question(payload, led), teller, form)
    if answer.finish_reason == "length":
        raise Fail(
            "output_truncated",
            f"the plan is longer than max_tokens={payload.max_tokens} allows; ask for more",
        )
    all_titles = titles(answer.text, told)
    if not all_titles:
        raise Fail("output_invalid", "the model made no list of steps")
    kept = unique(all_titles)
    steps = [PlanStep(n, title) for n, title in enumerate(kept[: payload.max_steps], 1)]
    return PlanResult(payload.goal, steps, len(all_titles) - len(kept))


def question(payload: PlanPayload, led: bool) -> list[Message]:
    """Asks for the steps."""
    context = f"{payload.context}\n\n" if payload.context else ""
    if led:  # short and plain: more words confuse it
        count = _COUNTS[payload.max_steps - 2]
        ask = f"Write a plan with {count} short steps for this goal: {payload.goal}"
        return [Message("system", "You are a helpful assistant."), Message("user", context + ask)]
    system = (
        "You make plans. Each step is one short sentence that says what to do. "
        'Answer with JSON only: {"steps": ["…", "…"]}'
    )
    ask = f"At most {payload.max_steps} steps to this goal: {payload.goal}"
    return [Message("system", system), Message("user", context + ask)]


def titles(text: str, told: Callable[[str], Sequence[str]]) -> list[str]:
    """The steps of a complete answer: in the form that was asked for, or else in any list."""
    found = told(text) or _NUMBERED.findall(text)
    return [title for each in found if (title := _title(each))]


def _title(text: str) -> str:
    """On one line, and without a number of the model's own."""
    return _OWN_NUMBER.sub("", " ".join(text.split()))[:_LONGEST_TITLE]


def unique(all_titles: Sequence[str]) -> list[str]:
    """Each step once."""
    kept: dict[str, str] = {}
    for title in all_titles:
        kept.setdefault(_gist(title), title)
    return list(kept.values())


def _gist(title: str) -> str:
    return re.sub(r"\W+", " ", title).strip().casefold()


def _as_list(payload: PlanPayload) -> Form:
    return Grammar(grammars.numbered_list(payload.max_steps))


def _lines(text: str) -> Sequence[str]:
    return _WHOLE_LINE.findall(text)


def _as_json(payload: PlanPayload) -> Form:
    return JsonForm(
        "plan",
        {
            "type": "object",
            "properties": {
                "steps": {
                    "type": "array",
                    "items": {"type": "string"},
                    "maxItems": payload.max_steps,
                }
            },
            "required": ["steps"],
            "additionalProperties": False,
        },
    )


def _strings(text: str) -> Sequence[str]:
    return json_extraction.closed_strings(text, "steps")
