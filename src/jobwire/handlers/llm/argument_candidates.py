"""Candidate values for the arguments of a tool, copied from the prompt. Pure.

A small model asked for a city writes the country; restricted to words of the prompt, it selects the
city. So each argument is limited to values that occur in the prompt.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from jobwire.handlers.llm.tools import Tool, ToolParameter
from jobwire.job.messages import Json

_EDGES: Final = ".,;:!?\"'()[]{}<>«»“”‘’…"
_NUMBER: Final = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w]|\.\d)")
_MAX_RUN_WORDS: Final = 6
_MAX_RUNS: Final = 400


def candidates(tool: Tool, text: str) -> Mapping[str, Sequence[Json]]:
    """The possible values of each argument. An optional argument is left out unless the text
    contains one of its choices; a required argument without a match has no candidates."""
    has_numbers = any(each.kind in ("number", "integer") for each in tool.parameters)
    found: dict[str, Sequence[Json]] = {}
    for each in tool.parameters:
        values = _values(each, text)
        if each.kind == "string" and has_numbers:  # those are for the numeric parameters
            values = [value for value in values if not _NUMBER.fullmatch(str(value))]
        if not each.required:
            values = [value for value in each.choices if str(value).lower() in text.lower()]
        if values or each.required:
            found[each.name] = values
    return found


def missing_arguments(tool: Tool, text: str, candidates: Mapping[str, Sequence[Json]]) -> list[str]:
    """Required arguments without a candidate, or without a number of their own: each number of the
    text counts for one argument."""
    numeric = [p.name for p in tool.parameters if p.required and p.kind in ("number", "integer")]
    spare = len(_NUMBER.findall(text))
    return [name for name, values in candidates.items() if not values] or numeric[spare:]


def word_runs(text: str) -> list[str]:
    """Every run of one to six consecutive words, without surrounding punctuation."""
    words = text.split()
    runs: dict[str, None] = {}
    for first in range(len(words)):
        for length in range(1, min(_MAX_RUN_WORDS, len(words) - first) + 1):
            if run := " ".join(words[first : first + length]).strip(_EDGES):
                runs[run] = None
    return list(runs)[:_MAX_RUNS]


def numbers(text: str) -> list[float]:
    """Every distinct number, in order."""
    return list(dict.fromkeys(float(found) for found in _NUMBER.findall(text)))


def _values(parameter: ToolParameter, text: str) -> list[Json]:
    match parameter.kind:
        case "string":
            return [*word_runs(text)]
        case "number":
            return [int(each) if each.is_integer() else each for each in numbers(text)]
        case "integer":
            return [int(each) for each in numbers(text) if each.is_integer()]
        case "boolean":
            return [True, False]
        case _:
            return [*parameter.choices]
