"""Job ids as people type them: whole, their first characters, or shortened as this CLI prints them.

Used by every command that takes an id.
"""

import re
from typing import Final

from jobwire.cli import output, sanitize
from jobwire.cli.exits import CliExit, Exit
from jobwire.client import AsyncClient, JobLine, NoSuchJob

_MAX_PAGES: Final = 10
_PAGE: Final = 200
_MIN_CHARS: Final = 4
_SHOWN: Final = 5
# A whole id has 36 characters; an id of a foreign gateway may be shorter.
_WHOLE: Final = 32
_SHORTENED: Final = re.compile(r"…|\.\.\.")


async def resolve(client: AsyncClient, given: str) -> str:
    """The id of the only job that `given` stands for; CliExit if there is none, or several."""
    if len(given) >= _WHOLE:
        return given
    first, _, last = _SHORTENED.sub("…", given, count=1).partition("…")
    if given and not last:
        try:
            return (await client.get(given)).job_id
        except NoSuchJob:
            pass
    if len(first) < _MIN_CHARS:
        line = f"{sanitize.line(given)!r} is too short; give at least {_MIN_CHARS} characters"
        raise CliExit(line, Exit.USAGE)
    found, scanned, silent = await _matching(client, first, last)
    if not found and silent:
        line = f"no job whose id begins with {sanitize.line(given)!r}; {output.silent(silent)}"
        raise CliExit(line, Exit.UNREACHABLE)
    if not found:
        line = (
            f"there is no such job, nor one whose id begins with {sanitize.line(given)!r} among "
            f"the newest {scanned}"
        )
        raise CliExit(line, Exit.NOT_FOUND)
    if len(found) > 1:
        shown = ", ".join(sanitize.line(job.job_id) for job in found[:_SHOWN])
        line = f"{sanitize.line(given)!r} matches several jobs: {shown}; give more characters"
        raise CliExit(line, Exit.USAGE)
    return found[0].job_id


async def _matching(
    client: AsyncClient, first: str, last: str
) -> tuple[list[JobLine], int, list[int]]:
    """Jobs whose id begins with `first` and ends with `last`, how many were scanned, and the shards
    that did not answer."""
    silent: set[int] = set()
    found: list[JobLine] = []
    cursor: str | None = None
    scanned = 0
    for _ in range(_MAX_PAGES):
        page = await client.list(limit=_PAGE, cursor=cursor)
        scanned += page.scanned
        silent.update(page.incomplete)
        found += [
            job for job in page.jobs if job.job_id.startswith(first) and job.job_id.endswith(last)
        ]
        cursor = page.cursor
        if cursor is None:
            break
    return found, scanned, sorted(silent)
