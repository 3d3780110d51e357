"""The running program, asked over its own HTTP as any client would."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, Final

from jobwire.doctor.finding import Finding, Verdict
from jobwire.endpoints import FoundProgram

_PATIENCE_S: Final = 5.0
_NOT_READY: Final[tuple[Verdict, str]] = ("fault", "the program is not ready without it")
_JUDGED: Final[Mapping[str, tuple[Verdict, str]]] = {
    "ready": ("ok", ""),
    "degraded": ("fault", "jobs that need it fail; all others run"),
}


def examine(found: FoundProgram | None) -> Iterator[Finding]:
    """Is it there, and is every part of it ready?"""
    if found is None:
        yield Finding("program", "note", "none is running here", fix="jobwire up")
        return
    try:
        status, body = _get(f"{found.url}/readyz")
    except (OSError, ValueError) as error:
        yield Finding(
            "program",
            "unreachable",
            f"{found.url} (by {found.origin}) does not answer: {_reason(error)}",
            "clients look for it there",
            "start it: jobwire up",
        )
        return
    if "parts" not in body:
        yield Finding(
            "program",
            "fault",
            f"{found.url} (by {found.origin}) answers {status}, but not as jobwire does",
            "another program has its port",
            "correct JOBWIRE_URL, or start jobwire on another port",
        )
        return
    yield Finding("program", "ok", f"{found.url}, version {body.get('version') or 'unknown'}")
    for part in body["parts"]:
        verdict, why = _JUDGED.get(part["state"], _NOT_READY)
        yield Finding(
            f"part {part['name']}",
            verdict,
            ": ".join(filter(None, [part["state"], part.get("note", "")])),
            why,
            part.get("what_to_do", ""),
        )


def _get(url: str) -> tuple[int, dict[str, Any]]:
    if not url.startswith(("http://", "https://")):
        raise ValueError("it is no http:// or https:// URL")
    # Never through a proxy: it is most often on this machine.
    ask = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with ask.open(url, timeout=_PATIENCE_S) as answer:
            status, text = answer.status, answer.read(1 << 20)
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read(1 << 20)
    try:
        return status, dict(json.loads(text))
    except (ValueError, TypeError):
        return status, {}


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(getattr(reason, "strerror", None) or reason or error)
