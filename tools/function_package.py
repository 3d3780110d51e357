"""`python tools/function_package.py`: the photo bot as a ZIP file for cloud functions.

It holds jobwire, msgspec and obstore for Linux on x86-64, in the locked versions, and nothing else
of jobwire's requirements: the functions import none of it. The size is written at the end.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
NEEDED: Final = ("msgspec", "obstore")
# The serverless entry needs these of our packages; the others would only add weight.
OURS: Final = ("job", "objects", "settings", "systems/predictions")
PLATFORM: Final = "manylinux2014_x86_64"
# A date of its own, so that the same source makes the same file.
_DATE: Final = (2026, 1, 1, 0, 0, 0)


def main() -> int:
    """Build the package; 1 if something is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", default="3.12", help="version of the function's Python")
    parser.add_argument("--output", type=Path, default=ROOT / "dist" / "jobwire-functions.zip")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        staging = Path(folder)
        if not _install(staging, given.python):
            return 1
        _copy_ours(staging / "jobwire")
        _write_entry(staging)
        given.output.parent.mkdir(parents=True, exist_ok=True)
        _pack(staging, given.output)
    unpacked = sum(info.file_size for info in zipfile.ZipFile(given.output).infolist())
    sys.stdout.write(
        f"{given.output}: {given.output.stat().st_size / 1e6:.1f} MB, "
        f"{unpacked / 1e6:.1f} MB unpacked, Python {given.python}\n"
    )
    return 0


def _install(staging: Path, python: str) -> bool:
    command = [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
        *("--target", str(staging), "--no-deps", "--no-compile", "--require-hashes"),
        *("--only-binary", ":all:", "--platform", PLATFORM, "--python-version", python),
    ]
    requirements = staging / "requirements.txt"
    requirements.write_text(_locked())
    done = subprocess.run([*command, "--requirement", str(requirements)], check=False)
    requirements.unlink()
    return done.returncode == 0


def _locked() -> str:
    """The locked lines of what is needed."""
    text = (ROOT / "locked" / "all.txt").read_text()
    found = [
        match[0]
        for name in NEEDED
        for match in re.finditer(rf"^{name}==(?:.*\\\n)*.*\n", text, re.MULTILINE)
    ]
    if len(found) != len(NEEDED):
        raise SystemExit(f"locked/all.txt does not list all of {', '.join(NEEDED)}")
    return "".join(found)


def _copy_ours(target: Path) -> None:
    source = ROOT / "src" / "jobwire"
    ignored = shutil.ignore_patterns("__pycache__", "http", "tree.py", "merge.py", "page.py")
    for name in OURS:
        shutil.copytree(source / name, target / name, ignore=ignored)
    for module in source.glob("*.py"):
        shutil.copy(module, target / module.name)
    shutil.copy(source / "systems" / "__init__.py", target / "systems" / "__init__.py")


def _write_entry(staging: Path) -> None:
    """The module that the clouds look for at the top of a package."""
    text = (
        '"""Entry points: main.bot, main.callback, main.reconcile."""\n\n'
        "from jobwire.functions import bot, callback, reconcile\n\n"
        '__all__ = ["bot", "callback", "reconcile"]\n'
    )
    (staging / "main.py").write_text(text)


def _pack(staging: Path, output: Path) -> None:
    files = sorted(each for each in staging.rglob("*") if each.is_file())
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for file in files:
            name = file.relative_to(staging)
            if "__pycache__" in name.parts or name.parts[0] == "bin":
                continue
            info = zipfile.ZipInfo(str(name), _DATE)
            info.external_attr = 0o644 << 16
            packed.writestr(info, file.read_bytes(), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    sys.exit(main())
