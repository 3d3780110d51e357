"""O-6: the response time of `/livez` while another client attacks the gateway.

Each attack has its own gateway and runs for some seconds in another process. The limits: the
slowest response within half a second, and 300 MiB more memory of the gateway.

Those who take connections attack a gateway with keys and webhooks, which may open 1,600 files
(`--files N`; 0: what the system allows): one after another, then all together for 20 seconds
(`--together SECONDS`). A client of another address and tenant asks for health within half a second
and submits within one; the gateway may have 100 MiB more. `--connections` runs only these.
"""

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

import psutil

from bench import attacks_connections
from bench.attacks_client import ATTACKS
from bench.gateway import gateway_server
from bench.measure import cpu_s
from jobwire.gateway.auth import hash_of
from jobwire.local import LocalS3, LocalValkey
from jobwire.local.listen import listen

_SECONDS: Final = 6.0
_PAUSE_S: Final = 0.02
_LIMIT_S: Final = 0.5
_LIMIT_BYTES: Final = 300 << 20
_SUBMIT_LIMIT_S: Final = 1.0
_SUBMIT_PAUSE_S: Final = 0.2
"""So that five minutes do not fill the tenant's queue (`jobs.tenant_max_open`)."""
_CONNECTIONS_PER_S: Final = 200
"""Of all attackers together, after the first ones."""
_CONNECTIONS_LIMIT_BYTES: Final = 100 << 20
_JOB: Final[dict[str, object]] = {"task": "chat", "payload": {}, "ttl_s": 600}


def _livez_s(port: int) -> float:
    began_s = time.monotonic()
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/livez")
    assert connection.getresponse().read() == b'{"status":"alive"}'
    connection.close()
    return time.monotonic() - began_s


def _withstands(name: str, valkey_url: str) -> bool:
    with gateway_server(valkey_url) as (pid, port):
        _livez_s(port)
        server = psutil.Process(pid)
        before_bytes, began_s = server.memory_info().rss, cpu_s(pid)
        args = [name, str(port), valkey_url, str(_SECONDS)]
        attack = subprocess.Popen(
            [sys.executable, "-m", "bench.attacks_client", *args],
            stdout=subprocess.PIPE,
            text=True,
        )
        times_s: list[float] = []
        most_bytes = before_bytes
        while attack.poll() is None:
            times_s.append(_livez_s(port))
            most_bytes = max(most_bytes, server.memory_info().rss)
            time.sleep(_PAUSE_S)
        done = json.loads(attack.communicate()[0])["done"]
        used_s = cpu_s(pid) - began_s
    worst_s = max(times_s)
    print(
        f"  {name:<11} {done:>9} {worst_s * 1000:>12.0f} {(most_bytes - before_bytes) >> 20:>10}"
        f" {used_s:>8.1f}",
        flush=True,
    )
    return worst_s <= _LIMIT_S and most_bytes - before_bytes <= _LIMIT_BYTES


@contextlib.contextmanager
def _gateway_with_keys(folder: Path, valkey_url: str, files: int) -> Generator[tuple[int, int]]:
    """`jobwire gateway` with the webhooks of a provider, which nobody calls: its pid and port."""
    keys = [
        {
            "name": name,
            "hash": hash_of(f"jw_{name}"),
            "scopes": ["submit", "read"],
            "tenant": tenant,
        }
        for name, tenant in attacks_connections.KEYS.items()
    ]
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
    with LocalS3(folder / "s3", bucket="bench") as s3:
        nowhere = "http://127.0.0.1:9"
        given = {
            "GATEWAY_KEYS": json.dumps(keys),
            "VALKEY_URL": valkey_url,
            "OBJECTS_ENDPOINT": s3.endpoint,
            "OBJECTS_BUCKET": s3.bucket,
            "OBJECTS_ACCESS_KEY": s3.access_key,
            "OBJECTS_SECRET_KEY": s3.secret_key,
            "PREDICTIONS_MODEL": f"a/b:{0:064}",
            "PREDICTIONS_REPLICATE_TOKEN": "r8_none",
            "PREDICTIONS_REPLICATE_URL": nowhere,
            "PREDICTIONS_WEBHOOK_SECRET": "whsec_" + "A" * 32,
            "PREDICTIONS_TELEGRAM_TOKEN": "1:none",
            "PREDICTIONS_TELEGRAM_URL": nowhere,
        }
        command = [sys.executable, "-m", "jobwire", "gateway", "--port", str(port)]
        limit = f"ulimit -n {files}; " if files else ""
        process = subprocess.Popen(
            ["/bin/sh", "-c", f'{limit}exec "$@"', "sh", *command, "--only", "jobs,predictions"],
            env={**os.environ, **{f"JOBWIRE_{name}": value for name, value in given.items()}},
            stderr=subprocess.DEVNULL,
        )
        try:
            for _ in range(300):
                with contextlib.suppress(OSError):
                    _livez_s(port)
                    break
                time.sleep(0.1)
            yield process.pid, port
        finally:
            process.terminate()
            process.wait()


def _asked(port: int, request: bytes, expected: int) -> float:
    """Seconds of one request of another client; for ever if it fails."""
    began_s = time.monotonic()
    with contextlib.suppress(OSError, ValueError, IndexError):
        with attacks_connections.connect(port, attacks_connections.OTHER) as peer:
            peer.sendall(request)
            status, _ = attacks_connections.answer(peer)
        if status == expected:
            return time.monotonic() - began_s
    return float("inf")


def _withstands_connections(
    pid: int, port: int, names: Sequence[str], seconds: float, jobs: str
) -> bool:
    livez = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    submit = attacks_connections.submission("beta", _JOB)
    server = psutil.Process(pid)
    before_bytes, began_s = server.memory_info().rss, cpu_s(pid)
    arguments = (str(port), str(seconds), str(_CONNECTIONS_PER_S / len(names)), jobs)
    attackers = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.attacks_connections", name, *arguments],
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    livez_s: list[float] = []
    submit_s: list[float] = []
    most_bytes = before_bytes
    while any(each.poll() is None for each in attackers):
        livez_s.append(_asked(port, livez, 200))
        submit_s.append(_asked(port, submit, 202))
        most_bytes = max(most_bytes, server.memory_info().rss)
        time.sleep(_SUBMIT_PAUSE_S)
    opened = sum(json.loads(each.communicate()[0])["done"] for each in attackers)
    failed = livez_s.count(float("inf")) + submit_s.count(float("inf"))
    name = names[0] if len(names) == 1 else "all"
    print(
        f"  {name:<11} {opened:>7} {len(livez_s):>7} {failed:>7} {max(livez_s) * 1000:>9.0f}"
        f" {max(submit_s) * 1000:>9.0f} {(most_bytes - before_bytes) >> 20:>9}"
        f" {cpu_s(pid) - began_s:>7.1f}",
        flush=True,
    )
    more_bytes = most_bytes - before_bytes
    return (
        max(livez_s) <= _LIMIT_S
        and max(submit_s) <= _SUBMIT_LIMIT_S
        and more_bytes <= _CONNECTIONS_LIMIT_BYTES
    )


def _connections(folder: Path, valkey_url: str, files: int, together_s: float) -> bool:
    names = tuple(attacks_connections.ATTACKS)
    print(
        f"\n  {'taken by':<11} {'opened':>7} {'asked':>7} {'failed':>7} {'livez ms':>9}"
        f" {'submit ms':>9} {'MiB more':>9} {'CPU s':>7}"
    )
    with _gateway_with_keys(folder, valkey_url, files) as (pid, port):
        made = {
            attacks_connections.KEYS[key]: attacks_connections.delayed_job(port, key)
            for key in ("alpha0", "gamma")
        }
        jobs = json.dumps(made)
        alone = [_withstands_connections(pid, port, [name], _SECONDS, jobs) for name in names]
        return _withstands_connections(pid, port, names, together_s, jobs) and all(alone)


def run(*options: str) -> bool:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=1600)
    parser.add_argument("--together", type=float, default=20)
    parser.add_argument("--connections", action="store_true")
    given = parser.parse_args(options)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder, LocalValkey(Path(folder)) as valkey:
        others = given.connections or _others(valkey.url)
        return _connections(Path(folder), valkey.url, given.files, given.together) and others


def _others(valkey_url: str) -> bool:
    print(f"  {'attack':<11} {'done':>9} {'slowest ms':>12} {'MiB more':>10} {'CPU s':>8}")
    withstood = [_withstands(name, valkey_url) for name in ATTACKS]
    return all(withstood)
