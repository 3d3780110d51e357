"""Instructions of a job and of a request, compared with the committed figures (Q-1, Q-4).

Callgrind counts what a program executes, whatever else the machine does: the counts of two runs
differ by less than a thousandth. So a change that makes a job or a request dearer is noticed on the
day it lands. Each figure is the difference of two runs of different lengths: the start of the
program is not in it, nor is the kernel's part.

A machine that is several times slower than usual has more ticks of timers in a job: a figure that
differs is counted again, up to twice, and the nearest count is taken. A change of the code is in
all of them.

`make instructions` fails if a figure is more than 3 % away from `instructions.json`, in either
direction; `make instructions ARGS=--write` writes the file anew. Counts depend on the interpreter
and on the C library: where these differ from those of the file, the figures are printed only.
"""

import compileall
import http.client
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from jobwire.local.valkey import LocalValkey, bundled_program
from tests.support.program import write_program

ROOT: Final = Path(__file__).parents[1]
FIGURES: Final = Path(__file__).with_suffix(".json")
_TOLERANCE: Final = 0.03
_COUNTED: Final = 3
"""How often at most, while a figure differs."""
_FEW, _MANY = 100, 600
_TOTAL: Final = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)
_SERVER_CONFIG: Final = ("appendonly no", "hz 1", "dynamic-hz no")
"""The server's periodic work depends on time, and callgrind makes time long."""
_JOB: Final = b'{"task":"chat","payload":{"prompt":"Tell me a story about a fox and a crow."}}'


class Posts(NamedTuple):
    """How many requests a run of the gateway gets."""

    jobs: int
    empty: int


def _callgrind(out: Path) -> list[str]:
    return ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}"]


def _total(out: Path) -> int:
    found = _TOTAL.search(out.read_text())
    if found is None:
        raise RuntimeError(f"callgrind wrote no total to {out.name}")
    return int(found[1])


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONHASHSEED": "0"}


def _work(server: LocalValkey, jobs: int, *prefix: str) -> None:
    """Submit and work this many jobs, 50 at a time."""
    peer = [sys.executable, "-m", "bench.peers.rounds_peer"]
    command = [*prefix, *peer, server.admin_url, str(jobs // 50)]
    subprocess.run(
        command, cwd=ROOT, env=_environment(), check=True, timeout=300, stdout=subprocess.DEVNULL
    )


def _client_of_jobs(jobs: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "callgrind.out")
        with LocalValkey(Path(folder, "data"), admin=True, extra=_SERVER_CONFIG) as server:
            _work(server, jobs, *_callgrind(out))
        return _total(out)


def _server_of_jobs(jobs: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        out, wrapper = Path(folder, "callgrind.out"), Path(folder, "valkey-server")
        write_program(wrapper, *_callgrind(out), bundled_program())
        with LocalValkey(
            Path(folder, "data"), admin=True, extra=_SERVER_CONFIG, program=wrapper
        ) as server:
            _work(server, jobs)
        return _total(out)


def _post(connection: http.client.HTTPConnection, path: str, body: bytes, times: int) -> None:
    for _ in range(times):
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status >= 300:
            raise RuntimeError(f"POST {path}: {response.status} {response.read(500)!r}")
        response.read()


def _gateway(posts: Posts) -> int:
    """One client, one request at a time."""
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.create_server(("127.0.0.1", 0)) as listening,
    ):
        out = Path(folder, "callgrind.out")
        with LocalValkey(Path(folder, "data"), admin=True, extra=_SERVER_CONFIG) as server:
            running = subprocess.Popen(
                [
                    *_callgrind(out),
                    *(sys.executable, "-m", "bench.gateway_server"),
                    *(server.admin_url, str(listening.fileno())),
                ],
                cwd=ROOT,
                env=_environment(),
                pass_fds=[listening.fileno()],
            )
            try:
                port = listening.getsockname()[1]
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
                _post(connection, "/v1/jobs", _JOB, posts.jobs)
                _post(connection, "/empty", b"{}", posts.empty)
                connection.close()
            finally:
                running.terminate()
                running.wait()
        return _total(out)


def measure() -> dict[str, int]:
    """Instructions by figure. Runs go side by side: callgrind does not mind."""
    # Otherwise the first run of two compiles what has changed, and the second does not.
    for folder in ("src", "bench"):
        compileall.compile_dir(ROOT / folder, quiet=1)
    few = Posts(_FEW, _FEW)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        clients = [pool.submit(_client_of_jobs, jobs) for jobs in (_MANY, _FEW)]
        gateways = [
            pool.submit(_gateway, posts)
            for posts in (few._replace(jobs=_MANY), few._replace(empty=_MANY), few)
        ]
        servers = [pool.submit(_server_of_jobs, jobs) for jobs in (_MANY, _FEW)]
    client, client_few = (run.result() for run in clients)
    server, server_few = (run.result() for run in servers)
    posts, empty, neither = (run.result() for run in gateways)
    more = _MANY - _FEW
    return {
        "job, client": (client - client_few) // more,
        "job, server": (server - server_few) // more,
        "POST /v1/jobs, gateway": (posts - neither) // more,
        "empty route, gateway": (empty - neither) // more,
    }


def _counted_with() -> str:
    """What the counts depend on besides our code and its locked packages."""
    valgrind = subprocess.run(["valgrind", "--version"], capture_output=True, text=True, check=True)
    python = f"Python {platform.python_version()} ({platform.python_compiler()})"
    libc = " ".join(platform.libc_ver())
    return ", ".join([python, libc, valgrind.stdout.strip(), platform.machine()])


def _change(name: str, counted: Mapping[str, int], committed: Mapping[str, int]) -> float:
    before = committed.get(name, 0)
    return counted[name] / before - 1 if before else float("inf")


def _differing(counted: Mapping[str, int], committed: Mapping[str, int]) -> list[str]:
    return [name for name in counted if abs(_change(name, counted, committed)) > _TOLERANCE]


def _nearest(committed: Mapping[str, int]) -> dict[str, int]:
    """Of several counts the one that is nearest to each committed figure."""
    figures = measure()
    for _ in range(_COUNTED - 1):
        if not (differing := _differing(figures, committed)):
            break
        print(f"counted again: {', '.join(differing)}", flush=True)
        again = measure()
        for name in differing:
            one, other = (abs(_change(name, each, committed)) for each in (figures, again))
            figures[name] = again[name] if other < one else figures[name]
    return figures


def run(*options: str) -> bool:
    if shutil.which("valgrind") is None:
        print("not counted: valgrind is not installed")
        return True
    content, counted_with = json.loads(FIGURES.read_text()), _counted_with()
    committed, is_comparable = content["instructions"], content["counted with"] == counted_with
    if "--write" in options:
        figures = committed = measure()
        is_comparable = True
        content = {"counted with": counted_with, "instructions": figures}
        FIGURES.write_text(json.dumps(content, indent=2) + "\n")
    else:
        figures = _nearest(committed) if is_comparable else measure()
    print(f"{'instructions':<26} {'counted':>10} {'committed':>10} {'change':>8}")
    for name, counted in figures.items():
        change = _change(name, figures, committed)
        print(f"{name:<26} {counted:>10,} {committed.get(name, 0):>10,} {change:>+8.1%}")
    ratio = figures["POST /v1/jobs, gateway"] / figures["empty route, gateway"]
    print(f"POST / empty route: {ratio:.2f}")
    if not is_comparable:
        print(f"not compared: counted with {counted_with}; the file with {content['counted with']}")
        return True
    differing = _differing(figures, committed)
    if differing:
        print(f"more than {_TOLERANCE:.0%} away from {FIGURES.name}: {', '.join(differing)}")
        print("If it is worth it: make instructions ARGS=--write, and the reason in the commit")
    return not differing


if __name__ == "__main__":
    sys.exit(0 if run(*sys.argv[1:]) else 1)
