"""`python -m tests.redis8 [pytest arguments]`: the tests that need Redis 7, with Redis 8.

The packages of Debian's unstable release are unpacked into the cache, with the libraries that they
need: the program runs beside older ones of the machine, and needs no root. Only on Debian, on
x86-64 and arm64.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Final, cast

from tests.support.program import ROOT, write_program
from tests.support.servers import OTHER_REDIS
from tests.support.thirdparty import cache_folder

_ARCHIVE: Final = "http://deb.debian.org/debian"
_PROGRAM: Final = "redis-tools"
_MEMBER: Final = re.compile(r"^(Package|Version|Depends|Filename|SHA256): (.*)$", re.MULTILINE)
_LIMIT_S: Final = 60
_TESTS: Final = ("-k", "redis or oldest_supported", "-p", "no:randomly", "tests/support_tests")
_FOLDERS: Final = ("tests/valkey", "tests/systems/queues", "tests/local", "tests/contracts")


def program() -> Path:
    """The server, unpacked."""
    found = subprocess.run(
        ["dpkg", "--print-architecture"], capture_output=True, text=True, check=True
    )
    index = lzma.decompress(_read(f"dists/unstable/main/binary-{found.stdout.strip()}/Packages.xz"))
    packages = {
        each["Package"]: each
        for text in index.decode().split("\n\n")
        if (each := dict(_MEMBER.findall(text)))
    }
    folder = cache_folder() / f"redis-{packages[_PROGRAM]['Version'].replace(':', '-')}"
    server = folder / "redis-server"
    if not server.exists():
        for name in _needed(packages):
            _unpack(packages[name], folder)
        (libraries,) = {each.parent for each in folder.glob("usr/lib/*-linux-gnu*/libc.so.6")}
        loader = next(libraries.glob("ld-linux-*.so.*"))
        # Debian's server has this name beside the package with the service.
        binary = folder / "usr/bin/redis-check-rdb"
        options = ("--library-path", libraries, "--argv0", "redis-server")
        write_program(server, loader, *options, binary)
    return server


def _needed(packages: dict[str, dict[str, str]]) -> list[str]:
    """The package and all libraries that it needs."""
    found: list[str] = []
    left = [_PROGRAM]
    while left:
        name = left.pop()
        if name in found or name not in packages:
            continue
        found.append(name)
        needs = re.findall(r"(?:^|, )(lib[^ ,|:(]+)", packages[name].get("Depends", ""))
        left += cast("list[str]", needs)
    return found


def _unpack(package: dict[str, str], folder: Path) -> None:
    body = _read(package["Filename"])
    if hashlib.sha256(body).hexdigest() != package["SHA256"]:
        raise SystemExit(f"{package['Filename']}: it is not what the index names")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "package.deb"
    file.write_bytes(body)
    subprocess.run(["dpkg-deb", "--extract", file, folder], check=True)
    file.unlink()


def _read(path: str) -> bytes:
    with urllib.request.urlopen(f"{_ARCHIVE}/{path}", timeout=_LIMIT_S) as reply:
        return cast(bytes, reply.read())


def main(arguments: list[str]) -> int:
    env = {**os.environ, OTHER_REDIS: str(program())}
    pytest = [sys.executable, "-m", "pytest", *(arguments or (*_TESTS, *_FOLDERS))]
    return subprocess.run(pytest, cwd=ROOT, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
