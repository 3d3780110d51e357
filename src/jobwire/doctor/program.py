"""Checks of the running program, over HTTP as a client."""

import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from jobwire.doctor.finding import Finding, Verdict
from jobwire.endpoints import FoundProgram

_TIMEOUT_S: Final = 5.0
_NOT_READY: Final[tuple[Verdict, str]] = ("fault", "the program is not ready without this part")
_BY_STATE: Final[Mapping[str, tuple[Verdict, str]]] = {
    "ready": ("ok", ""),
    "degraded": ("fault", "jobs that need it fail; all others run"),
}


class _Part(msgspec.Struct):
    name: str
    state: str
    note: str = ""
    what_to_do: str = ""


class _Answer(msgspec.Struct):
    """Of /readyz; a problem document has no version."""

    parts: list[_Part]
    version: str = "unknown"


def examine(found: FoundProgram | None) -> Iterator[Finding]:
    """Check that the program responds and that each part is ready."""
    if found is None:
        yield Finding("program", "note", "none is running here", fix="jobwire up")
        return
    try:
        status, text = _get(f"{found.url}/readyz")
    except (OSError, ValueError) as error:
        yield Finding(
            "program",
            "unreachable",
            f"{found.url} (by {found.origin}) does not answer: {_reason(error)}",
            "clients use this address",
            "start it: jobwire up",
        )
        return
    try:
        answer = msgspec.json.decode(text, type=_Answer)
    except msgspec.DecodeError:
        yield Finding(
            "program",
            "fault",
            f"{found.url} (by {found.origin}) answers {status}, but not like jobwire",
            "another program uses its port",
            "correct JOBWIRE_URL, or start jobwire on another port",
        )
        return
    yield Finding("program", "ok", f"{found.url}, version {answer.version}")
    for part in answer.parts:
        verdict, why = _BY_STATE.get(part.state, _NOT_READY)
        state = ": ".join(filter(None, [part.state, part.note]))
        yield Finding(f"part {part.name}", verdict, state, why, part.what_to_do)


def _get(url: str) -> tuple[int, bytes]:
    if not url.startswith(("http://", "https://")):
        raise ValueError("it is not an http:// or https:// URL")
    # Without a proxy: the program usually runs on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_TIMEOUT_S) as response:
            return response.status, response.read(1 << 20)
    except urllib.error.HTTPError as error:
        return error.code, error.read(1 << 20)


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(getattr(reason, "strerror", None) or reason or error)
