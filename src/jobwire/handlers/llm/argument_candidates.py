"""Candidate values for the arguments of a tool, copied from the prompt. Pure.

A small model asked for a city writes the country; restricted to words of the prompt, it selects the
city. So each argument is limited to values that occur in the prompt. Each number of the prompt
serves one argument. A wrong call is worse than none: an argument that the prompt does not name is
missing.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, permutations
from typing import Final, NamedTuple

from jobwire.handlers.llm.tools import Tool, ToolParameter
from jobwire.job.messages import Json

_EDGES: Final = ".,;:!?\"'()[]{}<>«»“”‘’…"
_NUMBER: Final = re.compile(
    r"(?<![\w.,])[-−]?(?:\d{1,3}(?:[,_'’\u00a0\u202f]\d{3})+|\d+)(?:\.\d+)?(?![\w]|[.,]\d)"
)
_SEPARATORS: Final = re.compile(r"[,_'’\u00a0\u202f]")
_NEGATION: Final = re.compile(
    r"\b(?:do not|don[’']?t|does not|doesn[’']?t|never|must not|mustn[’']?t|should not|"
    r"shouldn[’']?t|cannot|can[’']?t|not|avoid|refrain|without)\b",
    re.IGNORECASE,
)
_YES: Final = re.compile(r"\b(?:yes|true|on|enabled?|with)\b", re.IGNORECASE)
_NO: Final = re.compile(r"\b(?:no|false|off|disabled?)\b", re.IGNORECASE)
_NUMERIC: Final = ("number", "integer")
_MAX_RUN_WORDS: Final = 6
_MAX_RUNS: Final = 400
_MAX_ASSIGNMENTS: Final = 5_000
_MAX_CHOICES: Final = 64


class NumberInText(NamedTuple):
    """A number of the prompt and the words around it."""

    value: int | float
    position: int
    before: frozenset[str]
    """The two words before it."""
    after: frozenset[str]
    """The word after it."""

    def names(self, parameter: ToolParameter) -> int:
        """How well the words around the number name a parameter."""
        words = parameter.name.lower().split("_")
        return 4 * (not self.before.isdisjoint(words)) or 2 * (not self.after.isdisjoint(words))


@dataclass(frozen=True, slots=True)
class ArgumentCandidates:
    """What the arguments may be."""

    values: Mapping[str, Sequence[Json]]
    """The possible values of each argument that is not a number."""
    together: Sequence[Mapping[str, Json]]
    """The possible assignments of numbers to the numeric arguments, none used twice."""
    missing: Sequence[str]
    """Required arguments without a value in the prompt."""

    def only(self) -> dict[str, Json] | None:
        """The arguments, if nothing is left to select."""
        if len(self.together) > 1 or any(len(each) != 1 for each in self.values.values()):
            return None
        numbers: Mapping[str, Json] = self.together[0] if self.together else {}
        return {**numbers, **{name: each[0] for name, each in self.values.items()}}


def candidates(tool: Tool, text: str) -> ArgumentCandidates:
    """The possible arguments. An optional one is left out unless the text names it."""
    numeric = [each for each in tool.parameters if each.kind in _NUMERIC and each.required]
    numbers = list(numbers_in(text))
    together = _assignments(numeric, numbers)
    missing: list[str] = []
    if numeric and not together:
        usable = min(len(numbers), len(numeric) - 1)
        missing = [each.name for each in numeric[usable:]]
    values: dict[str, Sequence[Json]] = {}
    for each in tool.parameters:
        if each.kind in _NUMERIC:
            continue
        found = _values(each, text, has_numbers=bool(numeric))
        if found:
            values[each.name] = found
        elif each.required:
            missing.append(each.name)
    order = [each.name for each in tool.parameters]
    return ArgumentCandidates(values, together, sorted(missing, key=order.index))


def negation(text: str) -> str:
    """The words that forbid something; empty if there are none."""
    found = _NEGATION.search(text)
    return found[0] if found else ""


def numbers_in(text: str) -> Iterator[NumberInText]:
    """Every number with its whole digits, in order."""
    for position, found in enumerate(_NUMBER.finditer(text)):
        plain = _SEPARATORS.sub("", found[0]).replace("−", "-")
        value = float(plain) if "." in plain else int(plain)
        before, after = _words(text[: found.start()])[-2:], _words(text[found.end() :])[:1]
        yield NumberInText(value, position, frozenset(before), frozenset(after))


def _words(text: str) -> list[str]:
    return [word.strip(_EDGES).lower() for word in text.split()]


def word_runs(text: str) -> list[str]:
    """Every run of one to six consecutive words, without surrounding punctuation."""
    words = text.split()
    runs: dict[str, None] = {}
    for first in range(len(words)):
        for length in range(1, min(_MAX_RUN_WORDS, len(words) - first) + 1):
            if _cuts_a_name(words, first, first + length):
                continue
            if run := " ".join(words[first : first + length]).strip(_EDGES):
                runs[run] = None
    return list(runs)[:_MAX_RUNS]


def _cuts_a_name(words: Sequence[str], start: int, end: int) -> bool:
    """Whether the run is a part of a name of several capitalized words."""

    def joined(at: int) -> bool:
        """Whether the words before and at this place belong together."""
        before = words[at - 1]
        return at > 1 and before[:1].isupper() and before[-1:].isalnum() and words[at][:1].isupper()

    return (start > 0 and joined(start)) or (end < len(words) and joined(end))


def _assignments(
    parameters: Sequence[ToolParameter], numbers: Sequence[NumberInText]
) -> list[dict[str, Json]]:
    """Numbers for the parameters: those whose names stand beside them first, then in order."""
    best: dict[tuple[int | float, ...], None] = {}
    best_score = -1
    for chosen in islice(permutations(numbers, len(parameters)), _MAX_ASSIGNMENTS):
        pairs = list(zip(parameters, chosen, strict=True))
        if any(p.kind == "integer" and not isinstance(n.value, int) for p, n in pairs):
            continue
        named = sum(n.names(p) for p, n in pairs)
        in_order = all(a.position < b.position for a, b in pairwise(chosen))
        score = named + in_order
        if score > best_score:
            best, best_score = {}, score
        if score == best_score:
            best[tuple(n.value for n in chosen)] = None
    names = [each.name for each in parameters]
    return [dict(zip(names, values, strict=True)) for values in list(best)[:_MAX_CHOICES] if names]


def _values(parameter: ToolParameter, text: str, *, has_numbers: bool) -> list[Json]:
    if parameter.kind == "boolean":
        return _truth(parameter, text)
    if parameter.choices:
        return [each for each in parameter.choices if _names(text, str(each))]
    if not parameter.required:
        return []
    # A number is for a numeric parameter, if there is one.
    return [run for run in word_runs(text) if not (has_numbers and _NUMBER.fullmatch(run))]


def _truth(parameter: ToolParameter, text: str) -> list[Json]:
    if _NO.search(text):
        return [False]
    return [True] if _YES.search(text) or _names(text, parameter.name) else []


def _names(text: str, choice: str) -> bool:
    """Whether the text contains the choice as words of its own."""
    words = re.escape(choice.replace("_", " ")).replace(r"\ ", r"[\s_-]+")
    return re.search(rf"(?<!\w){words}(?!\w)", text, re.IGNORECASE) is not None
