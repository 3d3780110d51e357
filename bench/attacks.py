"""O-6: the response time of `/livez` while another client attacks the gateway.

Each attack has its own gateway and runs for some seconds in another process. The limits: the
slowest response within half a second, and 300 MiB more memory of the gateway.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

import psutil

from bench.attacks_client import ATTACKS
from bench.gateway import gateway_server
from bench.measure import cpu_s
from jobwire.local import LocalValkey

_SECONDS: Final = 6.0
_PAUSE_S: Final = 0.02
_LIMIT_S: Final = 0.5
_LIMIT_BYTES: Final = 300 << 20


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


def run() -> bool:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(f"  {'attack':<11} {'done':>9} {'slowest ms':>12} {'MiB more':>10} {'CPU s':>8}")
    with tempfile.TemporaryDirectory() as folder, LocalValkey(Path(folder)) as valkey:
        withstood = [_withstands(name, valkey.url) for name in ATTACKS]
    return all(withstood)
