"""One attacker who takes connections: `… NAME PORT SECONDS RATE JOBS`.

It opens many connections, then RATE more in each second, until the time is over. `bench.attacks`
starts the gateway, whose keys are those below; JOBS has the id of a job that does not end for each
tenant, as JSON. Prints the number of connections as JSON.
"""

import collections
import contextlib
import json
import resource
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final

KEYS: Final = {f"alpha{number}": "alpha" for number in range(10)} | {
    "beta": "beta",
    "gamma": "gamma",
}
"""Name of each key, which is `jw_` and its name, and its tenant; `beta` does not attack."""
ATTACKER: Final = "127.0.0.2"
OTHER: Final = "127.0.0.9"
_AT_ONCE: Final = 1200
_HOST: Final = "HTTP/1.1\r\nHost: localhost\r\n"
_HOOK: Final = (
    f"POST /hooks/replicate {_HOST}webhook-id: a\r\nwebhook-timestamp: 1\r\n"
    "webhook-signature: v1,A\r\nContent-Length: 200000\r\n\r\n"
)


def connect(port: int, address: str) -> socket.socket:
    peer = socket.socket()
    peer.settimeout(10)
    # Otherwise each connection of the attacker keeps a port for a minute.
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    peer.bind((address, 0))
    peer.connect(("127.0.0.1", port))
    return peer


def keyed(method: str, path: str, key: str, more: str = "") -> str:
    return f"{method} {path} {_HOST}Authorization: Bearer jw_{key}\r\n{more}\r\n"


def submission(key: str, job: object) -> bytes:
    body = json.dumps(job)
    lines = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return (keyed("POST", "/v1/jobs", key, lines) + body).encode()


def delayed_job(port: int, key: str) -> str:
    """The id of a new job that does not start."""
    with connect(port, ATTACKER) as peer:
        peer.sendall(submission(key, {"task": "chat", "payload": {}, "delay_s": 3600}))
        return json.loads(answer(peer)[1])["job_id"]


def answer(peer: socket.socket) -> tuple[int, bytes]:
    """Status and body of a response with a length."""
    with peer.makefile("rb") as lines:
        status, length = int(lines.readline().split()[1]), 0
        while line := lines.readline().strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        return status, lines.read(length)


class Attacker:
    """Opens connections of one kind."""

    def __init__(self, port: int, jobs: Mapping[str, str]) -> None:
        self._port = port
        self._jobs = jobs

    def stream(self, key: str) -> str:
        return keyed("GET", f"/v1/jobs/{self._jobs[KEYS[key]]}/events", key)

    def wait(self, key: str) -> str:
        return keyed("GET", f"/v1/jobs/{self._jobs[KEYS[key]]}", key, "Prefer: wait=60\r\n")

    def run(self, name: str, seconds: float, rate: float) -> int:
        until_s, opened = time.monotonic() + seconds, 0
        peers: collections.deque[socket.socket] = collections.deque(maxlen=_AT_ONCE)
        while time.monotonic() < until_s:
            address = f"127.0.1.{opened % 250 + 1}" if name == "many" else ATTACKER
            with contextlib.suppress(OSError):
                peer = connect(self._port, address)
                peer.sendall(ATTACKS[name](self, opened).encode())
                if name == "closed":
                    peer.close()
                elif name == "half closed":
                    peer.shutdown(socket.SHUT_WR)
                peers.append(peer)  # the oldest one is closed
            opened += 1
            if opened > _AT_ONCE:
                time.sleep(1 / rate)
        return opened


ATTACKS: Final[dict[str, Callable[[Attacker, int], str]]] = {
    "nothing": lambda _, __: "",
    "heads": lambda _, __: "GET /livez HT",
    "hooks": lambda _, __: _HOOK,
    "many": lambda _, __: _HOOK,
    "streams": lambda attacker, _: attacker.stream("alpha0"),
    "waits": lambda attacker, _: attacker.wait("alpha0"),
    "closed": lambda attacker, _: attacker.wait("alpha0"),
    "half closed": lambda attacker, _: attacker.wait("alpha0"),
    "pipelined": lambda attacker, _: attacker.wait("alpha0") * 17,
    "slow bodies": lambda _, __: keyed("POST", "/v1/jobs", "alpha0", "Content-Length: 90000\r\n"),
    "ten keys": lambda attacker, number: attacker.stream(f"alpha{number % 10}"),
    "one proxy": lambda attacker, _: "".join(attacker.wait(f"alpha{each}") for each in range(10)),
    "two tenants": lambda attacker, number: attacker.stream(("alpha0", "gamma")[number % 2]),
}


if __name__ == "__main__":
    name, port, seconds, rate, jobs = sys.argv[1:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(
        json.dumps(
            {"done": Attacker(int(port), json.loads(jobs)).run(name, float(seconds), float(rate))}
        )
    )
