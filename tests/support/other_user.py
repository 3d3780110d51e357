"""Requests of another user of this machine, from a process of that user."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

OTHER_UID = 65534

# The interpreter may lie in a folder that the other user cannot read, so it becomes that user late.
_CLIENT = """
import json, os, socket, struct, sys
uid, exchanges = json.load(sys.stdin)
os.setgroups([]); os.setgid(uid); os.setuid(uid)
answers = []
for family, source, target, request, leave in exchanges:
    with socket.socket(family) as peer:
        peer.settimeout(30)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        peer.bind(tuple(source))
        peer.connect(tuple(target))
        peer.sendall(request.encode())
        if leave == "reset":
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if leave == "half":
            peer.shutdown(socket.SHUT_WR)
        got = b""
        while leave in ("", "half"):
            part = peer.recv(65536)
            if not part:
                break
            got += part
        answers.append(got.decode())
print(json.dumps(answers))
"""

Exchange = tuple[int, Sequence[object], Sequence[object], str, str]
"""Address family, own address, address of the server, request, and how the client leaves: with the
end of the response, after it has closed its side (`half`), `close` or `reset` at once."""


def exchange(*exchanges: Exchange, uid: int = OTHER_UID) -> list[str]:
    """Send raw requests as the user `uid`, each on a connection of its own; return the answers."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", _CLIENT],
        input=json.dumps([uid, exchanges]),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout)
