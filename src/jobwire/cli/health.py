"""`jobwire health`: whether a program on this machine is ready, for health checks of containers."""

import http.client
import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import click

from jobwire.cli import options, output, sanitize
from jobwire.cli.exits import CliExit, Exit

if TYPE_CHECKING:
    from jobwire.settings import Settings

_PROGRAMS: Final = ("gateway", "worker", "uploads")
_FIRST_PROCESS: Final = Path("/proc/1/cmdline")
_TIMEOUT_S: Final = 3.0
_MAX_BYTES: Final = 65_536
_EVERY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound


@click.command()
@click.argument("program", type=click.Choice(_PROGRAMS), required=False)
@click.option("--live", is_flag=True, help="Ask only whether it runs, not whether it is ready.")
@options.as_json
def command(program: str | None, live: bool) -> None:
    """Ask a program on this machine whether it is ready; exit code 3 if it is not.

    The port is that of the settings: gateway.port for gateway (also of `jobwire images api`),
    images.port for uploads (`jobwire images gateway`), worker.metrics_port for worker. Without an
    argument, the program is the one that runs as process 1 of the container.

    \b
    Examples:
      jobwire health gateway
      jobwire health worker --live
    """
    program = program or _first_program()
    host, port = _address(program, options.settings().settings)
    path = "/livez" if live else "/readyz"
    name = f"{program} at {host}:{port}"
    try:
        status, body = _get(host, port, path)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or error
        raise CliExit(f"{name} does not answer: {reason}", Exit.UNREACHABLE) from error
    if status != http.client.OK:
        reason = sanitize.line(str(body.get("detail") or f"status {status}"))
        what = "alive" if live else "ready"
        raise CliExit(f"{name} is not {what}: {reason}", Exit.UNREACHABLE)
    output.facts({"program": program, "status": str(body.get("status", ""))})


def _address(program: str, settings: "Settings") -> tuple[str, int]:
    host, port, setting = {
        "gateway": (settings.gateway.host, settings.gateway.port, "gateway.port"),
        "uploads": (settings.images.host, settings.images.port, "images.port"),
        "worker": (
            settings.worker.metrics_host,
            settings.worker.metrics_port,
            "worker.metrics_port",
        ),
    }[program]
    if not port:
        raise CliExit(f"{setting} is 0: set it to ask the {program} for its health", Exit.USAGE)
    host = host.strip("[]")
    return _EVERY_ADDRESS.get(host, host), port


def _get(host: str, port: int, path: str) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read(_MAX_BYTES)
    finally:
        connection.close()
    try:
        body: object = json.loads(text)
    except ValueError:
        body = None
    return answer.status, cast("dict[str, Any]", body) if isinstance(body, dict) else {}


def _first_program() -> str:
    """The program that the container's command line starts."""
    try:
        words = _FIRST_PROCESS.read_bytes().decode(errors="replace").split("\0")
    except OSError:
        words = []
    program = program_of(words)
    if program is None:
        raise CliExit(f"name the program: {', '.join(_PROGRAMS)}", Exit.USAGE)
    return program


def program_of(words: list[str]) -> str | None:
    """The program in the words of a command line, such as `python jobwire --debug worker app`."""
    starts = [at for at, word in enumerate(words) if word.rpartition("/")[2] == "jobwire"]
    after = words[starts[0] + 1 :] if starts else []
    for word, following in itertools.pairwise([*after, ""]):
        if word == "images":
            return {"gateway": "uploads", "api": "gateway"}.get(following)
        if word in ("gateway", "worker"):
            return word
    return None
