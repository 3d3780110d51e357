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

_BLOCK: Final = re.compile(r"```[^\n`]*\n(?P<code>.*?)(?:\n[ \t]*```|(?<=\n)```)", re.DOTALL)


async def code(ctx: TaskContext, payload: CodePayload, deps: TaskDeps) -> CodeResult:
    """Generate one fenced block, and stop the model at its end."""
    emitter = TokenEmitter(ctx, is_complete=lambda text: _BLOCK.search(text) is not None)
    answer = await deps.answer(ctx, payload, question(payload), emitter)
    found = block(answer.text)
    if found is None:
        answer.check_complete("code", payload.max_tokens)
        found = answer.text.strip()
    if not found:
        raise Fail("output_invalid", "the model wrote no code")
    return CodeResult(found, payload.language, answer.text, syntax_ok(found, payload.language))


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
    """The first closed fenced block, if any."""
    if found := _BLOCK.search(text):
        return found["code"].strip("\n")
    return None


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
