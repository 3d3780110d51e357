"""`make lock`: write the locked requirements, with the hashes of all files of each version.

Input: the dependencies in pyproject.toml, and constraints.txt with the version of each package.
Output: constraints.txt with all versions, and the files in `locked/`, which `make` installs:

    all.txt    what `jobwire up` needs, and the build backend
    dev.txt    what tests and checks need besides
    bench.txt  what benchmarks need besides both
    docs.txt   what the site of the documentation needs besides all.txt

and those that deploy/Dockerfile installs, all of it also in all.txt:

    build.txt       the build backend
    image.txt       the image `jobwire`
    image-full.txt  what `jobwire-full` has besides

The closure is taken from the metadata of the packages in this environment, evaluated for each
target, so a lock made on one machine holds on the others. The hashes come from the indexes that
pip is configured for; neither their names nor their addresses are written.
"""

import json
import os
import re
import ssl
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from html.parser import HTMLParser
from importlib.metadata import PackageNotFoundError, distribution
from itertools import product
from pathlib import Path
from typing import Final, cast
from urllib.parse import unquote, urldefrag, urljoin
from urllib.request import Request, url2pathname, urlopen

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

ROOT: Final = Path(__file__).parent.parent
CONSTRAINTS: Final = ROOT / "constraints.txt"
LOCKED: Final = ROOT / "locked"
# Each file holds the closure of the extra of its name, without what these files hold.
GROUPS: Final = {
    "all": (),
    "dev": ("all",),
    "bench": ("all", "dev"),
    "docs": ("all",),
    "build": (),
    "image": (),
    "image-full": ("image",),
}
# Files for other extras than that of their name; "" is jobwire itself, "build" its build backend.
EXTRAS: Final = {
    "all": ("", "all", "build"),
    "build": ("build",),
    "image": ("", "server", "objects", "metrics", "otel"),
    "image-full": ("images", "llm"),
}
PYTHONS: Final = ("3.11", "3.12", "3.13")
PLATFORMS: Final = (
    ("linux", "x86_64"),
    ("linux", "aarch64"),
    ("darwin", "arm64"),
    ("darwin", "x86_64"),
)
TARGETS: Final = tuple(product(PYTHONS, PLATFORMS))
_JSON: Final = "application/vnd.pypi.simple.v1+json"
_ACCEPT: Final = {"Accept": f"{_JSON}, text/html;q=0.5"}
_SETTING: Final = re.compile(r"^(?:global|install|:env:)\.([a-z-]+)='(.*)'$", re.MULTILINE)
_DEFAULT_INDEX: Final = "https://pypi.org/simple"

Target = tuple[str, tuple[str, str]]


# ── closure ──────────────────────────────────────────────────────────────────────────────────────


def project() -> Mapping[str, list[str]]:
    """The requirements of jobwire itself: by extra, and under "" without one; "build" is the build
    backend."""
    read = tomllib.loads((ROOT / "pyproject.toml").read_text())
    table = cast("Mapping[str, object]", read["project"])
    extras = cast("Mapping[str, list[str]]", table["optional-dependencies"])
    backend = cast("Mapping[str, list[str]]", read["build-system"])["requires"]
    plain = cast("list[str]", table["dependencies"])
    named = {canonicalize_name(name): needs for name, needs in extras.items()}
    return {"": plain, "build": backend, **named}


def requirements_of(name: str, extra: str) -> Iterator[Requirement]:
    """What a package needs, alone ("") or for one of its extras."""
    if name == "jobwire":
        yield from map(Requirement, project()[extra])
        return
    yield from map(Requirement, distribution(name).requires or ())


def environment(target: Target, extra: str) -> dict[str, str]:
    python, (system, machine) = target
    return {
        "extra": extra,
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_system": system.capitalize(),
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": system,
    }


def closure(group: str, target: Target) -> set[str]:
    """The names of all packages that a group needs on a target."""
    waiting = [("jobwire", extra) for extra in EXTRAS.get(group, ("", group))]
    seen = set(waiting)
    while waiting:
        name, extra = waiting.pop()
        for need in requirements_of(name, extra):
            if need.marker and not need.marker.evaluate(environment(target, extra)):
                continue
            needed = canonicalize_name(need.name)
            for each in ("", *map(canonicalize_name, need.extras)):
                if (needed, each) not in seen:
                    seen.add((needed, each))
                    waiting.append((needed, each))
    return {name for name, _ in seen} - {"jobwire"}


def marker(targets: set[Target]) -> str:
    """The shortest marker that holds on exactly these targets; empty for all of them."""
    if targets == set(TARGETS):
        return ""
    pythons = sorted({python for python, _ in targets})
    platforms = sorted({platform for _, platform in targets})
    if set(product(pythons, platforms)) != targets:
        raise SystemExit(
            "a package is needed on an unsupported set of targets; extend tools/lock.py"
        )
    parts: list[str] = []
    if pythons != list(PYTHONS):
        parts.append(_any(f"python_version == '{python}'" for python in pythons))
    if platforms != sorted(PLATFORMS):
        parts.append(
            _any(f"sys_platform == '{a}' and platform_machine == '{b}'" for a, b in platforms)
        )
    return " ; " + " and ".join(parts)


def _any(choices: Iterable[str]) -> str:
    return f"({' or '.join(choices)})"


# ── hashes ───────────────────────────────────────────────────────────────────────────────────────


def indexes() -> list[str]:
    """The simple indexes that pip is configured for, by file or environment."""
    listed = _pip("config", "list", capture=True)
    settings = dict(
        re.findall(r"^(?:global|install|:env:)\.([a-z-]+)='(.*)'$", listed, re.MULTILINE)
    )
    found = settings.get("index-url", _DEFAULT_INDEX).split()
    return [*found, *settings.get("extra-index-url", "").split()]


class _Links(HTMLParser):
    def __init__(self, base: str) -> None:
        super().__init__()
        self.base = base
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href")
        if tag == "a" and href:
            self.found.append(urljoin(self.base, href))


def files(index: str, name: str) -> Iterator[tuple[str, str]]:
    """Each file of a package on an index: its name, and its SHA-256 if the index gives one."""
    url = f"{index.rstrip('/')}/{name}/"
    try:
        page, is_json = _fetch(url)
    except OSError:
        return  # this index does not have the package
    if is_json:
        for file in json.loads(page)["files"]:
            yield file["filename"], file["hashes"].get("sha256", "")
        return
    links = _Links(url)
    links.feed(page.decode())
    for link in links.found:
        address, fragment = urldefrag(link)
        digest = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else ""
        if not digest and address.startswith("file:"):
            local = Path(url2pathname(address.removeprefix("file://")))
            digest = sha256(local.read_bytes()).hexdigest()
        yield unquote(address.rpartition("/")[2]), digest


def _fetch(url: str) -> tuple[bytes, bool]:
    if url.startswith("file:"):
        return Path(url2pathname(url.removeprefix("file://")), "index.html").read_bytes(), False
    context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT"))
    with urlopen(Request(url, headers=_ACCEPT), timeout=60, context=context) as response:  # noqa: S310 - an index of pip's
        return response.read(), response.headers.get_content_type() == _JSON


def hashes(pin: tuple[str, str]) -> list[str]:
    """The SHA-256 of every file of this version, on every index."""
    name, version = pin
    found = {
        digest
        for index in indexes_once
        for file, digest in files(index, name)
        if digest and _version_of(file) == Version(version)
    }
    if not found:
        raise SystemExit(f"no index has a hash for {name}=={version}")
    return sorted(found)


def _version_of(file: str) -> Version | None:
    try:
        if file.endswith(".whl"):
            return parse_wheel_filename(file)[1]
        return parse_sdist_filename(file)[1]
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None


# ── files ────────────────────────────────────────────────────────────────────────────────────────


def _pip(*arguments: str, capture: bool = False) -> str:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, check=True, cwd=ROOT, text=True, capture_output=capture).stdout


def install() -> dict[str, dict[str, set[Target]]]:
    """Install what the groups need on any target; by group: each package and its targets."""
    constraint = ("--constraint", str(CONSTRAINTS))
    extras = ",".join(group for group in GROUPS if group not in EXTRAS)
    _pip("install", *constraint, "--editable", f".[{extras}]", *project()["build"])
    while True:
        missing: set[str] = set()
        groups: dict[str, dict[str, set[Target]]] = {}
        try:
            for group, target in product(GROUPS, TARGETS):
                for name in closure(group, target):
                    groups.setdefault(group, {}).setdefault(name, set()).add(target)
        except PackageNotFoundError as error:
            missing.add(error.name)
        if not missing:
            return groups
        _pip("install", *constraint, *missing)


def write(groups: Mapping[str, Mapping[str, set[Target]]]) -> None:
    versions = {name: distribution(name).version for needed in groups.values() for name in needed}
    head = (
        "# Exact versions that the checks and tests ran with. `make lock` adds what is missing.\n"
    )
    pins = "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()))
    CONSTRAINTS.write_text(head + pins)
    with ThreadPoolExecutor(8) as pool:
        found = dict(zip(versions, pool.map(hashes, versions.items()), strict=True))
    LOCKED.mkdir(exist_ok=True)
    write_files(groups, versions, found)


def write_files(
    groups: Mapping[str, Mapping[str, set[Target]]],
    versions: Mapping[str, str],
    found: Mapping[str, list[str]],
) -> None:
    """Write the file of each group, with the versions and hashes of its packages."""
    for group, needed in groups.items():
        lines = [f"# Made by `make lock` from pyproject.toml and constraints.txt: {group}.\n"]
        for name in sorted(needed):
            held = (groups[other].get(name, set[Target]()) for other in GROUPS[group])
            targets = needed[name].difference(*held)
            if targets:
                lines.append(f"{name}=={versions[name]}{marker(targets)}")
                lines += [f" \\\n    --hash=sha256:{digest}" for digest in found[name]]
                lines.append("\n")
        (LOCKED / f"{group}.txt").write_text("".join(lines))


indexes_once: Final = indexes()

if __name__ == "__main__":
    write(install())
