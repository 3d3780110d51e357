"""What stands in a request, as values that may be copied from it. Pure.

A small model that is asked for a city writes the country; one that may only choose among the words
of the request finds the city. So each argument is limited to what is really there.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from jobwire.handlers.llm.tools import Tool, ToolParameter
from jobwire.job.messages import Json

_EDGES: Final = ".,;:!?\"'()[]{}<>«»“”‘’…"
_NUMBER: Final = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w]|\.\d)")
_LONGEST_RUN: Final = 6
_MOST_RUNS: Final = 400


def offers(tool: Tool, text: str) -> Mapping[str, Sequence[Json]]:
    """What each argument may be. What may be left out is left out, unless one of its choices stands
    in the text; a required argument for which nothing fits has no offer."""
    has_numbers = any(each.kind in ("number", "integer") for each in tool.parameters)
    found: dict[str, Sequence[Json]] = {}
    for each in tool.parameters:
        values = _values(each, text)
        if each.kind == "string" and has_numbers:  # those are for the others
            values = [value for value in values if not _NUMBER.fullmatch(str(value))]
        if not each.required:
            values = [value for value in each.choices if str(value).lower() in text.lower()]
        if values or each.required:
            found[each.name] = values
    return found


def missing(tool: Tool, text: str, offered: Mapping[str, Sequence[Json]]) -> list[str]:
    """Required arguments for which the text has nothing, or no number left: each may be used once,
    or a sum of one number would be made of it and itself."""
    numeric = [p.name for p in tool.parameters if p.required and p.kind in ("number", "integer")]
    spare = len(_NUMBER.findall(text))
    return [name for name, values in offered.items() if not values] or numeric[spare:]


def word_runs(text: str) -> list[str]:
    """Every run of one to six words that stand together, without the marks around it."""
    words = text.split()
    runs: dict[str, None] = {}
    for first in range(len(words)):
        for length in range(1, min(_LONGEST_RUN, len(words) - first) + 1):
            if run := " ".join(words[first : first + length]).strip(_EDGES):
                runs[run] = None
    return list(runs)[:_MOST_RUNS]


def numbers(text: str) -> list[float]:
    """Every number, in its order."""
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
