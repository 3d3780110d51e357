"""Retry and cancel of many jobs by what they have in common: options, confirmation, the calls.

Used by `jobwire retry` and `jobwire cancel`.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import click

from jobwire.cli import completion, output, sanitize
from jobwire.cli.exits import CliExit, Exit
from jobwire.cli.job_options import seconds

if TYPE_CHECKING:
    from jobwire.client import BulkAnswer

F = TypeVar("F", bound=Callable[..., object])
Call = Callable[[bool, int | None, "str | None"], "Awaitable[BulkAnswer]"]
"""Called with: whether only to count, the earliest time in ms, and the cursor."""
_NO_TASK: Final = "give ids of jobs, or --task NAME for many jobs"


def selects(since: str) -> Callable[[F], F]:
    """The options that select jobs in place of ids; `since` is the help of `--since`."""

    def add(function: F) -> F:
        for option in (
            click.option("--dry-run", is_flag=True, help="With --task: only count them."),
            click.option("--since", metavar="DURATION", help=since),
            click.option(
                "--task",
                metavar="NAME",
                shell_complete=completion.task,
                help="The jobs of this task, in place of ids.",
            ),
        ):
            function = option(function)
        return function

    return add


def is_bulk(job_ids: tuple[str, ...], task: str | None, *others: object) -> bool:
    """Whether jobs are selected by their task; CliExit where neither or both are given."""
    if task and job_ids:
        raise CliExit("give ids of jobs or --task, not both", Exit.USAGE)
    if not task and not job_ids:
        raise CliExit(_NO_TASK, Exit.USAGE)
    if not task and any(each not in (None, False) for each in others):
        raise CliExit("options that select jobs need --task NAME, in place of ids", Exit.USAGE)
    return bool(task)


async def change(
    call: Call, verb: str, done: str, *, since: str | None, dry_run: bool, yes: bool
) -> Exit:
    """Count the jobs, ask, and change them, in as many calls as it takes."""
    since_ms = (
        round((time.time() - seconds("--since", since)) * 1000) if since is not None else None
    )
    matched = sum([answer.matched for answer in await _all(call, True, since_ms)])
    text = f"{matched} job{'' if matched == 1 else 's'}"
    if dry_run:
        output.result({"matched": matched, "dry_run": True}, f"{text} would be {done}")
        return Exit.OK
    if matched and not yes:
        output.confirm(f"{verb} {text}?", f"{text}, and no terminal to confirm on; add --yes")
    answers = await _all(call, False, since_ms) if matched else []
    changed, already = (
        sum(each.changed for each in answers),
        sum(each.already for each in answers),
    )
    refused = sum(each.refused for each in answers)
    line = f"{changed} {done}" + (f", {already} already" if already else "")
    output.result({"changed": changed, "already": already, "refused": refused}, line)
    if not refused:
        return Exit.OK
    # The last one, if it stopped the command.
    problems = [each.problem for each in answers if each.problem]
    problem = problems[-1] if _passes(problems[-1]) else problems[0]
    code = Exit.FULL if _passes(problem) else Exit.REFUSED
    raise CliExit(f"{refused} refused: {sanitize.line(str(problem.get('detail')))}", code)


async def _all(call: Call, dry_run: bool, since_ms: int | None) -> "list[BulkAnswer]":
    """The answers of all calls; the last one may have stopped at a problem that passes."""
    answers = [await call(dry_run, since_ms, None)]
    while answers[-1].cursor and not _passes(answers[-1].problem):
        answers.append(await call(dry_run, since_ms, answers[-1].cursor))
    return answers


def _passes(problem: Mapping[str, object] | None) -> bool:
    """Whether the other jobs would be refused, too, until it has passed."""
    return problem is not None and problem.get("status") in (429, 503)
