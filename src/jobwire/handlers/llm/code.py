"""The task `code`: writes code. It runs nothing."""

import ast
import re
import warnings
from typing import Final

from jobwire.handlers.context import TaskContext
from jobwire.handlers.llm.models import Message
from jobwire.handlers.llm.payloads import CodePayload, CodeResult
from jobwire.handlers.llm.streaming import TokenEmitter
from jobwire.handlers.llm.task_deps import TaskDeps
from jobwire.job.errors import Fail

_PUNCTUATION: Final = re.compile(r"[;{}()=<>\[\]$#]")
_OPENING: Final = re.compile(r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[^`\n]*\n", re.MULTILINE)


async def code(ctx: TaskContext, payload: CodePayload, deps: TaskDeps) -> CodeResult:
    """Generate one fenced block, and stop the model at its end."""
    emitter = TokenEmitter(ctx, is_complete=lambda text: block(text) is not None)
    answer = await deps.answer(ctx, payload, question(payload), emitter)
    found = block(answer.text)
    if found is None:
        answer.check_complete("code")
        found = unclosed_block(answer.text) or code_without_fence(answer.text, payload.language)
    if not found:
        raise Fail("output_invalid", "the model wrote no code")
    ok = syntax_ok(found, payload.language)
    return CodeResult(found, payload.language, answer.text, ok, answer.usage, answer.model)


def question(payload: CodePayload) -> list[Message]:
    """Ask for a fenced block, which can be extracted."""
    language = payload.language
    system = (
        f"You write {language} code. Answer with one code block, fenced by ```{language.lower()} "
        "and ```, and nothing else."
    )
    context = f"Given:\n{payload.context}\n\n" if payload.context else ""
    return [Message("system", system), Message("user", context + payload.prompt)]


def block(text: str) -> str | None:
    """The first closed fenced block, if any: of ``` or ~~~, of any length, also indented."""
    text = _lines(text)
    opening = _OPENING.search(text)
    if opening is None:
        return None
    fence = opening["fence"]
    closing = re.compile(rf"^[ \t]*{fence[0]}{{{len(fence)},}}[ \t]*$", re.MULTILINE)
    found = closing.search(text, opening.end())
    return _unindented(text[opening.end() : found.start()], opening) if found else None


def unclosed_block(text: str) -> str | None:
    """The code after an opening fence that the model did not close."""
    text = _lines(text)
    opening = _OPENING.search(text)
    return _unindented(text[opening.end() :], opening) if opening else None


def code_without_fence(text: str, language: str) -> str:
    """The text if it is code; empty for prose."""
    text = _lines(text).strip()
    if syntax_ok(text, language):
        return text if _has_statement(text) else ""
    has_sentence = any(map(_is_sentence, text.split("\n")))
    return "" if has_sentence or not _PUNCTUATION.search(text) else text


def _is_sentence(line: str) -> bool:
    line = line.strip()
    is_one = line[:1].isupper() and line[-1:] in (".", "!", "?", ":") and " " in line
    return is_one and not _PUNCTUATION.search(line)


def _has_statement(source: str) -> bool:
    """Whether Python does something; one word of prose is an expression too."""
    body = ast.parse(source).body
    return any(not isinstance(each, ast.Expr) or isinstance(each.value, ast.Call) for each in body)


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n")


def _unindented(code: str, opening: re.Match[str]) -> str:
    """The code without the indentation of its fence."""
    indent = opening["indent"]
    return "\n".join(line.removeprefix(indent) for line in code.split("\n")).strip("\n")


def syntax_ok(source: str, language: str) -> bool | None:
    """Whether the source parses; None for languages other than Python."""
    if language.lower() not in ("python", "python3", "py"):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the generated code
            ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
