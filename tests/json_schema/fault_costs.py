"""A program: prints what each fault of the hostile payloads costs, one JSON object a line.

Memory is the growth of the peak beyond what the payload itself takes; 0 where the system cannot
tell.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from jobwire.json_schema.validator import SchemaValidator
from tests.json_schema.hostile_payloads import HOSTILE, Hostile

SIZES: Final = (1.0, 0.1, 0.03, 0.01, 0.003)
"""Of all values: most faults are described for the largest payload that is still small."""
_STATUS: Final = Path("/proc/self/status")


def _kib(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def _cost(hostile: Hostile, count: int) -> tuple[float, float]:
    """Milliseconds of CPU, and MiB."""
    value: Any = json.loads(json.dumps(hostile.payload(count)))
    validator = SchemaValidator(hostile.schema)
    validator.is_valid(value)
    is_known = sys.platform == "linux"
    if is_known:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before_kib = _kib("VmRSS") if is_known else 0
    began_s = time.process_time()
    assert validator.fault(value) is not None
    ms = (time.process_time() - began_s) * 1000
    return ms, (_kib("VmHWM") - before_kib) / 1024 if is_known else 0.0


def rows() -> Iterator[dict[str, str | int | float]]:
    for name, hostile in HOSTILE.items():
        for size in SIZES:
            count = max(1, int(hostile.most * size))
            ms, mib = _cost(hostile, count)
            yield {"case": name, "values": count, "ms": round(ms, 1), "mib": round(mib, 1)}


if __name__ == "__main__":
    for _ in rows():
        break  # imports and first use of the library
    for row in rows():
        print(json.dumps(row))
