"""Runs the pages: files are written, programs and commands run, as a reader types them.

One `jobwire up` serves all pages. Each page has a folder below it, so its commands and programs
find the running program.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import yaml

from jobwire.local import LocalValkey
from tests.cli.runner import Up, clean_env, jobwire
from tests.docs.model_server import model_server
from tests.docs.pages import Block, blocks
from tests.handlers.photo import images
from tests.support import Program
from tests.support.program import ROOT
from tests.support.thirdparty import NODE, node_packages

_SHELL: Final = re.compile(r"[|<>$*;&`]|^[A-Z_]+=")
_JOB: Final = re.compile(r'"job_id": ?"([0-9a-f-]{36})"')
_TARGETS: Final = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
_TIMEOUT_S: Final = 120
# A program that does something, and does not only define it.
_CALLS: Final = re.compile(r"Client\(|OpenAI\(|asyncio\.run\(")
# Commands that only read: once is enough for all pages.
_ONCE: Final = re.compile(
    r"jobwire (doctor|config|list|version)$|curl (-s )?localhost:8080/[a-z.]+$"
)
PHOTOS: Final = ("photo.jpg", "holiday.jpg", "car.jpg")
# No page uses it, and its plugin costs each run of pytest half a second.
PYTEST_ENV: Final = {"PYTEST_ADDOPTS": "-p no:schemathesis -p no:cacheprovider"}


class Site:
    """`with Site(folder) as site: site.run(page)`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.read: set[str] = set()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with self._stack as stack:
            model = stack.enter_context(model_server())
            self.valkey = stack.enter_context(LocalValkey(self.folder / "admin", admin=True))
            env = {
                "OPENAI_BASE_URL": model,
                "OPENAI_MODEL": "tester",
                "JOBWIRE_LLM_EMBED_MODEL": "tester",
            }
            up = stack.enter_context(Up(self.folder, env=env)).wait_until_up()
            self.url = up.url
            self.port = up.url.rpartition(":")[2]
            self.server_url: str = up.endpoints()["valkey"].replace("valkey:", "redis:")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, page: Path) -> list[str]:
        """Every block of the page in order; what went wrong, each with its line."""
        folder = self.folder / "-".join(page.relative_to(ROOT).with_suffix("").parts)
        folder.mkdir()
        for name in PHOTOS:
            if name in page.read_text(encoding="utf-8"):
                (folder / name).write_bytes(images.jpeg(images.photograph()))
        with PageRun(self, page, folder) as run:
            return run.failures()

    def here(self, text: str) -> str:
        """The page's addresses as those of this site."""
        return text.replace("localhost:8080", f"127.0.0.1:{self.port}").replace(
            "redis://localhost:6379", self.server_url
        )


def define(block: Block) -> None:
    """Run a block that only defines something, in this process: a new one costs a second."""
    module = types.ModuleType("snippet")
    sys.modules["snippet"] = module
    try:
        exec(compile(block.text, str(block), "exec"), module.__dict__)
    except Exception as error:
        raise AssertionError(f"{block.text}\n{error!r}") from error
    finally:
        del sys.modules["snippet"]


def node_file(folder: Path, block: Block) -> Path:
    """The program of a block, where it finds its packages."""
    packages = folder / "node_modules"
    if not packages.exists():
        packages.symlink_to(node_packages() / "node_modules")
    file = folder / block.file
    file.write_text(block.text)
    return file


def run_node(folder: Path, block: Block, env: Mapping[str, str]) -> str:
    """Run a program of Node to its end; what it prints."""
    done = subprocess.run(
        [NODE, node_file(folder, block)],
        env=env,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
    return done.stdout


class PageRun:
    """One page."""

    def __init__(self, site: Site, page: Path, folder: Path) -> None:
        self._site = site
        self._page = page
        self._folder = folder
        self._job_id = ""
        self._programs = contextlib.ExitStack()
        here = Path(sys.executable).parent
        self._env: Mapping[str, str] = {
            **clean_env(**PYTEST_ENV),
            "PATH": f"{here}:{os.environ['PATH']}",
            "PYTHONPATH": str(folder),
            "VALKEY_DIR": str(site.folder / "admin"),
            "VALKEY_URL": site.server_url,
            "NO_PROXY": "*",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._programs.close()

    def failures(self) -> list[str]:
        found = blocks(self._page)
        typed = " ".join(block.text for block in found if block.language == "sh")
        problems: list[str] = []
        for block in found:
            if block.note in ("not run", "install"):
                continue
            try:
                self._block(block, typed)
            except (AssertionError, subprocess.TimeoutExpired, ValueError) as error:
                problems.append(f"{block}\n{error}")
        return problems

    def _block(self, block: Block, typed: str) -> None:
        match block.language:
            case "sh":
                code = int(block.detail) if block.note == "exit" else 0
                for line in block.commands():
                    self._line(line, code)
            case "python" if block.file:
                (self._folder / block.file).write_text(self._site.here(block.text))
                if not re.search(rf"\b{re.escape(Path(block.file).stem)}\b", typed):
                    self._shell(f"python {block.file}", 0)
            case "python" if _CALLS.search(block.text):
                self._expect([sys.executable, "-c", self._site.here(block.text)], 0, block.text)
            case "python":
                define(block)
            case "js":
                run_node(self._folder, block, self._env)
            case "yaml":
                yaml.safe_load(block.text)
                if block.file == "jobwire.yaml":
                    folder = self._folder / "settings"
                    folder.mkdir(exist_ok=True)
                    (folder / block.file).write_text(block.text)
                    done = jobwire("config", "--given", cwd=folder)
                    assert done.returncode == 0, done.stderr
            case "json":
                json.loads(block.text)
            case _:
                pass

    def _line(self, line: str, code: int) -> None:
        if _ONCE.match(line):
            if line in self._site.read:
                return
            self._site.read.add(line)
        match shlex.split(line):
            case ["make", target, *_]:
                assert target in _TARGETS, f"there is no `make {target}`"
            case ["jobwire", "up", *_] | ["source", ".venv/bin/activate"]:
                pass  # it runs; the options are checked by test_pages.py
            case ["jobwire", "worker", *arguments]:
                self._worker(arguments)
            case ["jobwire", *arguments] if not _SHELL.search(line):
                given = shlex.split(self._here(line))[1:]
                done = jobwire(*given, cwd=self._folder, env=self._server(line))
                self._check(line, done.returncode, done.stdout, done.stderr, code)
                assert arguments
            case _:
                self._shell(line, code)

    def _worker(self, arguments: list[str]) -> None:
        command = [sys.executable, "-m", "jobwire", "worker", *arguments]
        program = Program(command=command, cwd=self._folder, env=self._env)
        self._programs.callback(program.close)
        program.wait_for_line("worker with", timeout_s=60)

    def _here(self, line: str) -> str:
        return self._site.here(line).replace("JOB_ID", self._job_id)

    def _shell(self, line: str, code: int) -> None:
        # -q: ignore ~/.curlrc; -f: an HTTP error is a failure.
        typed = re.sub(r"^curl", "curl -q -sSf --noproxy '*'", self._here(line))
        self._expect(["bash", "-c", typed], code, line)

    def _server(self, line: str) -> dict[str, str]:
        """`jobwire valkey` of the pages changes a server of the user's own."""
        own = {"JOBWIRE_VALKEY_URL": self._site.valkey.admin_url}
        return own if line.startswith("jobwire valkey ") else {}

    def _expect(self, command: list[str], code: int, line: str) -> None:
        done = subprocess.run(
            command,
            cwd=self._folder,
            env={**self._env, **self._server(line)},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        self._check(line, done.returncode, done.stdout, done.stderr, code)

    def _check(self, line: str, returned: int, out: str, err: str, code: int) -> None:
        if found := _JOB.search(out):
            self._job_id = found[1]
        assert returned == code, f"{line}\nexit code {returned} instead of {code}\n{out}{err}"
