"""Checks of the running program, over HTTP as a client."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, Final

from jobwire.doctor.finding import Finding, Verdict
from jobwire.endpoints import FoundProgram

_TIMEOUT_S: Final = 5.0
_NOT_READY: Final[tuple[Verdict, str]] = ("fault", "the program is not ready without this part")
_BY_STATE: Final[Mapping[str, tuple[Verdict, str]]] = {
    "ready": ("ok", ""),
    "degraded": ("fault", "jobs that need it fail; all others run"),
}


def examine(found: FoundProgram | None) -> Iterator[Finding]:
    """Check that the program responds and that each part is ready."""
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
            "clients use this address",
            "start it: jobwire up",
        )
        return
    if "parts" not in body:
        yield Finding(
            "program",
            "fault",
            f"{found.url} (by {found.origin}) answers {status}, but not like jobwire",
            "another program uses its port",
            "correct JOBWIRE_URL, or start jobwire on another port",
        )
        return
    yield Finding("program", "ok", f"{found.url}, version {body.get('version') or 'unknown'}")
    for part in body["parts"]:
        verdict, why = _BY_STATE.get(part["state"], _NOT_READY)
        yield Finding(
            f"part {part['name']}",
            verdict,
            ": ".join(filter(None, [part["state"], part.get("note", "")])),
            why,
            part.get("what_to_do", ""),
        )


def _get(url: str) -> tuple[int, dict[str, Any]]:
    if not url.startswith(("http://", "https://")):
        raise ValueError("it is not an http:// or https:// URL")
    # Without a proxy: the program usually runs on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_TIMEOUT_S) as response:
            status, text = response.status, response.read(1 << 20)
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read(1 << 20)
    try:
        return status, dict(json.loads(text))
    except (ValueError, TypeError):
        return status, {}


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(getattr(reason, "strerror", None) or reason or error)
