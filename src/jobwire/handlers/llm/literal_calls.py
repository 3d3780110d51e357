"""Reads a request that is a call of a tool, word for word. Pure: no model takes part.

Used for workers without a model server. A wrong call is worse than none, so nothing is inferred:
the request begins with the tool's name and states every argument, and each word has its place.

    delete_file(name="notes.txt")      set_light kitchen 40      Delete the file notes.txt, please

A question, a condition, a negation, a unit or a second value leaves words over: no call.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from jobwire.handlers.llm.tools import Tool, ToolParameter

_TOKEN: Final = re.compile(
    r'"(?P<double>[^"]*)"|“(?P<curly>[^“”]*)”|(?<![\w])\'(?P<single>[^\']*)\'(?![\w])'
    r"|(?P<mark>[(),=]|:(?=\s))"
    r'|(?P<word>[^\s"“”(),=:]+(?::(?!\s)[^\s"“”(),=:]+)*)'
    r"|(?P<other>\S)"
)
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,15})?")
_LISTED_DIGITS: Final = re.compile(r"\d,\d")
_SENTENCE_END: Final = re.compile(r"(?<=[\w\"”')])[.!]$")
_LITERAL_WORD: Final = re.compile(
    r"(?:\.{0,2}|~)/[\w./~-]*\w"  # /etc/hosts, ./build
    r"|(?![\d-])(?:[\w-]+/)*[\w-]*(?:\.[\w-]+)*\.[^\W\d_]\w+"  # notes.txt, docs/a.txt, .env
    r"|(?![\d-])[\w.-]+@[\w-]+(?:\.[\w-]+)*\.[^\W\d_]\w+"  # bob@example.com
    r"|(?!\d)[^\W_]*_\w+"  # db_2
)
"""A word that can only be the name of something. Any other word may be part of the sentence: "now",
"Monday", "on/off", "a.m", "no.2", "pre-2020", "x2". Such a value needs quotes."""
_STATED_WORD: Final = re.compile(r"[\w./\\@+~:-]*\w[./\\@+~:-]*")
"""A value behind `name=`: any word, but no placeholder (`…`, `<name>`) and no pattern (`*`)."""
_ARTICLES: Final = frozenset({"the", "a", "an"})
_BOOLEANS: Final = {"true": True, "false": False}
_MAX_TOKENS: Final = 200


class RequestToken(NamedTuple):
    """One word, quoted text or punctuation mark of a request."""

    kind: str
    """`word`, `quoted` or `mark`."""
    text: str

    def is_word(self, word: str) -> bool:
        return self.kind == "word" and self.text.lower() == word

    def is_mark(self, mark: str) -> bool:
        return self.kind == "mark" and self.text == mark


class LiteralCall(NamedTuple):
    """A tool and the arguments that the request states."""

    tool: Tool
    arguments: dict[str, object]


class NoCall(Exception):
    """The request is not a call; the message says why."""


class _NotNamed(NoCall):
    pass


def find_call(tools: Sequence[Tool], request: str) -> LiteralCall:
    """The call that the request is; NoCall if it is none, or more than one."""
    tokens = _tokens(request)
    calls: list[LiteralCall] = []
    reasons: list[str] = []
    for tool in tools:
        try:
            calls.append(LiteralCall(tool, _arguments(tool, tokens)))
        except _NotNamed:
            continue
        except NoCall as no:
            reasons.append(str(no))
    if len(calls) == 1:
        return calls[0]
    if calls:
        names = " and ".join(call.tool.name for call in calls)
        raise NoCall(f"the request may be a call of {names}: write the name of one as it is")
    if reasons:
        raise NoCall(reasons[0])
    names = ", ".join(each.name for each in tools)
    raise NoCall(
        f"the request does not begin with the name of a tool ({names}): write the call, such as "
        f"{example(tools[0])}"
    )


def example(tool: Tool) -> str:
    """The call of a tool with its required arguments, as a request."""
    shown = (f"{p.name}={_sample(p)}" for p in tool.parameters if p.required)
    return f"{tool.name}({', '.join(shown)})"


def _sample(parameter: ToolParameter) -> str:
    if parameter.choices:
        return str(parameter.choices[0])
    return {"string": '"text"', "boolean": "true"}.get(parameter.kind, "1")


# ── tokens ────────────────────────────────────────────────────────────────────────────────────────


def _tokens(request: str) -> list[RequestToken]:
    text = request.strip()
    if text.endswith("?"):
        raise NoCall("the request is a question: write the call itself")
    tokens = list(_scan(_SENTENCE_END.sub("", text)))
    if not tokens or len(tokens) > _MAX_TOKENS:
        raise NoCall("the request is empty, or too long for a call")
    return _without_please(tokens)


def _scan(text: str) -> Iterator[RequestToken]:
    for found in _TOKEN.finditer(text):
        match found.lastgroup:
            case "word" | "mark" as kind:
                yield RequestToken(kind, found[0])
            case "double" | "curly" | "single" as quotes:
                yield RequestToken("quoted", found[quotes])
            case _:
                raise NoCall(f"{found[0]} without its counterpart")
    outside = _TOKEN.sub(lambda each: each[0] if each["word"] or each["mark"] else " ", text)
    if digits := _LISTED_DIGITS.search(outside):
        raise NoCall(f"{digits[0]} may be one number or two: write a space after a comma")


def _without_please(tokens: list[RequestToken]) -> list[RequestToken]:
    if tokens[0].is_word("please"):
        tokens = tokens[1:]
    if tokens and tokens[-1].is_word("please"):
        tokens = tokens[:-1]
        if tokens and tokens[-1].is_mark(","):
            tokens = tokens[:-1]
    return tokens


# ── the call of one tool ──────────────────────────────────────────────────────────────────────────


def _arguments(tool: Tool, tokens: Sequence[RequestToken]) -> dict[str, object]:
    rest = tokens[_name_length(tool, tokens) :]
    if rest and rest[0].is_mark("(") and tokens[0].text == tool.name:
        if not rest[-1].is_mark(")"):
            raise NoCall(f"the call of {tool.name} does not end with its closing parenthesis")
        given = list(_items(tool, rest[1:-1], needs_commas=True))
        arguments = _in_order(tool, given)
    else:
        if rest and rest[0].is_mark(":"):
            rest = rest[1:]
        given = list(_items(tool, rest, needs_commas=False))
        arguments = _by_kind(tool, given)
    if missing := [p.name for p in tool.parameters if p.required and p.name not in arguments]:
        raise NoCall(
            f"the request has no value for {tool.name}({missing[0]}=…); write all of them, such as "
            f"{example(tool)}"
        )
    return arguments


def _name_length(tool: Tool, tokens: Sequence[RequestToken]) -> int:
    """The number of tokens that name the tool: its name, or the words of it with articles."""
    if tokens and tokens[0].kind == "word" and tokens[0].text == tool.name:
        return 1
    at = 0
    for number, word in enumerate(tool.name.lower().strip("_").split("_")):
        while number and at < len(tokens) and tokens[at].text.lower() in _ARTICLES:
            at += 1
        if at >= len(tokens) or not tokens[at].is_word(word):
            raise _NotNamed
        at += 1
    return at


class _Item(NamedTuple):
    name: str
    """The parameter that the request names; empty if none."""
    value: RequestToken
    is_explicit: bool
    """Whether `=` or `:` stands before the value: then any word is one."""


def _items(tool: Tool, tokens: Sequence[RequestToken], *, needs_commas: bool) -> Iterator[_Item]:
    """The arguments that the tokens state; NoCall if a token is left over."""
    names = {each.name for each in tool.parameters}
    at = 0
    while at < len(tokens):
        if at and tokens[at].is_mark(","):
            at += 1
        elif at and needs_commas:
            raise _left_over(tool, tokens[at])
        name, is_explicit = "", False
        following = tokens[at + 1] if at + 1 < len(tokens) else None
        if at < len(tokens) and tokens[at].kind == "word" and tokens[at].text in names:
            is_explicit = following is not None and (
                following.is_mark("=") or following.is_mark(":")
            )
            if is_explicit or (following is not None and not needs_commas):
                name, at = tokens[at].text, at + 1 + is_explicit
        if at >= len(tokens) or tokens[at].kind == "mark":
            raise NoCall(f"a value is missing in the call of {tool.name}; such as {example(tool)}")
        yield _Item(name, tokens[at], is_explicit)
        at += 1


def _in_order(tool: Tool, items: Sequence[_Item]) -> dict[str, object]:
    """Arguments in parentheses: by name, or in the order of the signature."""
    arguments: dict[str, object] = {}
    is_named = False
    for position, item in enumerate(items):
        is_named |= bool(item.name)
        if not item.name and (is_named or position >= len(tool.parameters)):
            raise _left_over(tool, item.value)
        parameter = _parameter(tool, item.name) if item.name else tool.parameters[position]
        _add(arguments, tool, parameter, item)
    return arguments


def _by_kind(tool: Tool, items: Sequence[_Item]) -> dict[str, object]:
    """Arguments in words: by name, or the only parameter that takes such a value."""
    arguments: dict[str, object] = {}
    named = {item.name for item in items}
    for item in items:
        if item.name:
            _add(arguments, tool, _parameter(tool, item.name), item)
            continue
        fitting = [
            each
            for each in tool.parameters
            if each.name not in named and _values(each, item.value, is_explicit=False)
        ]
        if not fitting:
            raise _left_over(tool, item.value)
        if len(fitting) > 1:
            names = " or ".join(each.name for each in fitting)
            raise NoCall(f"{item.value.text} may be {names}: write {fitting[0].name}=…")
        _add(arguments, tool, fitting[0], item)
    return arguments


def _add(arguments: dict[str, object], tool: Tool, parameter: ToolParameter, item: _Item) -> None:
    if parameter.name in arguments:
        raise NoCall(f"the request has two values for {tool.name}({parameter.name}=…)")
    values = _values(parameter, item.value, is_explicit=item.is_explicit)
    if not values:
        raise _left_over(tool, item.value, parameter.name)
    arguments[parameter.name] = values[0]


def _parameter(tool: Tool, name: str) -> ToolParameter:
    return next(each for each in tool.parameters if each.name == name)


def _values(parameter: ToolParameter, token: RequestToken, *, is_explicit: bool) -> list[object]:
    """The value of a token for a parameter, if it is one."""
    text = token.text
    if parameter.choices:
        similar = [each for each in parameter.choices if str(each).lower() == text.lower()]
        exact = [each for each in similar if str(each) == text]
        return [*(exact or similar)] if len(exact or similar) == 1 else []
    if parameter.kind == "string":
        is_value = token.kind == "quoted" or _is_literal(text, is_explicit=is_explicit)
        return [text] if is_value and text else []
    if token.kind == "quoted":
        return []
    if parameter.kind == "boolean":
        return [_BOOLEANS[text.lower()]] if text.lower() in _BOOLEANS else []
    if not _NUMBER.fullmatch(text) or ("." in text and parameter.kind == "integer"):
        return []
    return [float(text) if "." in text else int(text)]


def _is_literal(word: str, *, is_explicit: bool) -> bool:
    if is_explicit:
        return bool(_STATED_WORD.fullmatch(word))
    return bool(_LITERAL_WORD.fullmatch(word))


def _left_over(tool: Tool, token: RequestToken, parameter: str = "") -> NoCall:
    place = f"{tool.name}({parameter}=…)" if parameter else f"a call of {tool.name}"
    return NoCall(
        f"{token.text!r} is not part of {place}: write the call and nothing else, such as "
        f"{example(tool)}"
    )
