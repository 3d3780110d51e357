"""O-12: every package that `make` installs is pinned by hash, on every target."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support import clause

ROOT: Final = Path(__file__).parents[2]
MODELS: Final = ROOT / "src/jobwire/handlers/llm/models/packages.txt"
FACES: Final = ROOT / "src/jobwire/handlers/photo/detectors/packages.txt"
PHOTOS: Final = ROOT / "tests/handlers/photo/packages.txt"
LOCKED: Final = [*sorted((ROOT / "locked").glob("*.txt")), MODELS, FACES, PHOTOS]
_HASH: Final = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def entries(path: Path) -> dict[str, tuple[Requirement, str]]:
    """Each requirement of a file by name, and the text of its hashes."""
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", "")
    found: dict[str, tuple[Requirement, str]] = {}
    for line in filter(str.strip, text.splitlines()):
        pin, _, hashes = line.partition("--hash=")
        requirement = Requirement(pin.strip())
        found[canonicalize_name(requirement.name)] = (requirement, f"--hash={hashes}")
    return found


@clause("O-12")
@pytest.mark.parametrize("path", LOCKED, ids=lambda path: path.name)
def test_o12_every_package_is_pinned_by_version_and_hash(path: Path) -> None:
    for name, (requirement, hashes) in entries(path).items():
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", name
        assert all(_HASH.fullmatch(each) for each in hashes.split()), name
    assert "://" not in path.read_text(), "the index is configured by the user"


@clause("O-12")
def test_o12_the_lock_contains_the_requirements_of_pyproject() -> None:
    """Fails after a change of the dependencies until `make lock` is run."""
    project: Any = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    locked = {name: pin for path in LOCKED for name, (pin, _) in entries(path).items()}
    for line in [*project["dependencies"], *(each for needs in extras.values() for each in needs)]:
        required = Requirement(line)
        if required.name == "jobwire":
            continue
        pin = locked.get(canonicalize_name(required.name))
        assert pin is not None, f"{required.name} is not locked; run `make lock`"
        (exact,) = pin.specifier
        assert required.specifier.contains(exact.version), f"{line}: {pin}; run `make lock`"


@clause("O-12")
@pytest.mark.parametrize("group", ["dev", "docs"])
def test_o12_a_lock_needs_no_other_but_that_of_up(group: str) -> None:
    """Jinja2, which the site needs, was locked for the tests only; `make docs` failed without."""
    locked = {**entries(ROOT / "locked/all.txt"), **entries(ROOT / f"locked/{group}.txt")}
    for name in entries(ROOT / f"locked/{group}.txt"):
        try:
            needs = distribution(name).requires or []
        except PackageNotFoundError:
            continue  # of the site: not among the test tools
        for needed in map(Requirement, needs):
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                assert canonicalize_name(needed.name) in locked, f"{name} needs {needed}"


@clause("O-12")
def test_o12_the_lock_of_the_site_has_what_its_templates_need() -> None:
    assert {"mkdocs", "jinja2", "python-dateutil"} <= entries(ROOT / "locked/docs.txt").keys()


@clause("O-12")
def test_o12_a_file_with_another_hash_is_not_installed(tmp_path: Path) -> None:
    """A package index that serves other bytes under a known name and version is refused."""
    wheel = tmp_path / "idna-3.20-py3-none-any.whl"
    wheel.write_bytes(b"other bytes")
    flags = re.findall(r"LOCKED := \$\(PIP\) (.*)", (ROOT / "Makefile").read_text())[0].split()
    requirements = tmp_path / "one.txt"
    _, hashes = entries(ROOT / "locked/all.txt")["idna"]
    requirements.write_text(f"idna==3.20 {hashes}\n")
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--find-links", str(tmp_path)]
    into = ["--target", str(tmp_path / "into"), "--requirement", str(requirements)]
    done = subprocess.run([*pip, *flags, *into], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert not (tmp_path / "into").exists()
