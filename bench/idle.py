"""Calls a second that an idle gateway and an idle worker cost the server (L-11).

`--seconds` is how long they are counted after they have settled.
"""

import argparse
import re
import tempfile
import time
from collections import Counter
from pathlib import Path

from jobwire.local import LocalValkey, free_port
from tests.support import Program
from tests.support.servers import Plain, plain_client

_SETTLE_S = 5.0


def run(*options: str) -> bool:
    parser = argparse.ArgumentParser(prog="python -m bench idle", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    seconds: float = parser.parse_args(options).seconds
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalValkey(Path(folder) / "valkey", admin=True) as server,
        plain_client(server) as plain,
    ):
        env = {"JOBWIRE_VALKEY_URL": server.url, "JOBWIRE_DATA_DIR": folder}
        for words in (("gateway", "--port", str(free_port())), ("worker", "tests.fleet.app:app")):
            with Program("-m", "jobwire", *words, env=env) as program:
                program.wait_for_line("worker with" if words[0] == "worker" else "gateway on")
                time.sleep(_SETTLE_S)
                before, cpu = _calls(plain)
                time.sleep(seconds)
                after, cpu_after = _calls(plain)
            rates = {name: (after[name] - before[name]) / seconds for name in after}
            rates = {name: rate for name, rate in rates.items() if rate >= 0.05}
            top = sorted(rates.items(), key=lambda item: -item[1])[:6]
            print(
                f"{words[0]}: scripts {rates.get('evalsha', 0):.1f}/s,"
                f" server CPU {(cpu_after - cpu) / seconds * 1000:.2f} ms/s; "
                + ", ".join(f"{name} {rate:.1f}" for name, rate in top)
            )
    return True


def _calls(plain: Plain) -> tuple[Counter[str], float]:
    text = str(plain.call("INFO", "commandstats", "cpu"))
    calls = re.findall(r"^cmdstat_([^:]+):calls=(\d+)", text, re.MULTILINE)
    cpu = re.findall(r"^used_cpu_(?:user|sys):([\d.]+)", text, re.MULTILINE)
    return Counter({str(name): int(count) for name, count in calls}), sum(map(float, cpu))
