"""The task `plan`: splits a goal into steps; each is emitted when it is complete.

A small model writes a numbered list under a grammar; a larger one writes JSON. Steps that repeat an
earlier one are dropped and counted.
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
from jobwire.job.messages import Json

_COUNTS: Final = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
"""Words, because a small model copies a digit of the prompt into the plan."""
_MAX_TITLE: Final = 1_000
_OWN_NUMBER: Final = re.compile(r"^\d+[.)] ")
_NUMBERED: Final = re.compile(r"^\s*(?:\d+[.)]|[-*•])\s+(\S.*?)\s*$", re.MULTILINE)
_WHOLE_LINE: Final = re.compile(r"^\d+\. (.+[.。])$", re.MULTILINE)


async def plan(ctx: TaskContext, payload: PlanPayload, deps: TaskDeps) -> PlanResult:
    """Generate the steps."""
    constrained = deps.models.chat().constrained
    form: Form = _json_form(payload)
    parse: Callable[[str], Sequence[str]] = _json_steps
    if constrained:
        form, parse = Grammar(grammars.numbered_list(payload.max_steps)), _WHOLE_LINE.findall
    emitter = StepEmitter(
        ctx, lambda text: unique([*map(_title, parse(text))])[: payload.max_steps]
    )
    answer = await deps.answer(ctx, payload, question(payload, constrained), emitter, form)
    answer.check_complete("plan")
    all_titles = titles(answer.text, parse)
    if not all_titles:
        raise Fail("output_invalid", "the model did not answer with a list of steps")
    kept = unique(all_titles)
    steps = [PlanStep(n, title) for n, title in enumerate(kept[: payload.max_steps], 1)]
    dropped = len(all_titles) - len(kept)
    return PlanResult(payload.goal, steps, dropped, answer.usage, answer.model)


def question(payload: PlanPayload, constrained: bool) -> list[Message]:
    """Ask for the steps."""
    context = f"{payload.context}\n\n" if payload.context else ""
    if constrained:  # short: small models fail on long instructions
        count = _COUNTS[payload.max_steps - 2]
        ask = f"Write a plan with {count} short steps for this goal: {payload.goal}"
        return [Message("system", "You are a helpful assistant."), Message("user", context + ask)]
    system = (
        "You make plans. Each step is one short sentence that says what to do. "
        'Answer with JSON only: {"steps": ["…", "…"]}'
    )
    ask = f"At most {payload.max_steps} steps to this goal: {payload.goal}"
    return [Message("system", system), Message("user", context + ask)]


def titles(text: str, parse: Callable[[str], Sequence[str]]) -> list[str]:
    """The steps of a complete answer: in the requested form, or else in any list."""
    found = parse(text) or _NUMBERED.findall(text)
    return [title for each in found if (title := _title(each))]


def _title(text: str) -> str:
    """One line, without the model's own number."""
    return _OWN_NUMBER.sub("", " ".join(text.split()))[:_MAX_TITLE]


def unique(all_titles: Sequence[str]) -> list[str]:
    """Drop steps that repeat an earlier one."""
    kept: dict[str, str] = {}
    for title in all_titles:
        kept.setdefault(re.sub(r"\W+", " ", title).strip().casefold(), title)
    return list(kept.values())


def _json_form(payload: PlanPayload) -> JsonForm:
    steps: Json = {"type": "array", "items": {"type": "string"}, "maxItems": payload.max_steps}
    return JsonForm("plan", grammars.object_schema({"steps": steps}))


def _json_steps(text: str) -> Sequence[str]:
    return json_extraction.closed_items(text, "steps")
