"""O-15: CPU and memory for the first fault of payloads that are costly to describe.

At several sizes up to 200 KB. The limits: 10 ms and 2 MiB each.
"""

import json
import subprocess
import sys
from typing import Final

_MS: Final = 10.0
_MIB: Final = 2.0


def run() -> bool:
    program = [sys.executable, "-m", "tests.json_schema.fault_costs"]
    done = subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    print(f"  {'the largest of each case':<40} {'values':>8} {'ms':>6} {'MiB':>6}")
    for case in dict.fromkeys(row["case"] for row in rows):
        most = max((row for row in rows if row["case"] == case), key=lambda row: row["ms"])
        print(f"  {case:<40} {most['values']:>8} {most['ms']:>6} {most['mib']:>6}")
    return all(row["ms"] <= _MS and row["mib"] <= _MIB for row in rows)
