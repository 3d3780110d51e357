"""What `import jobwire` offers, and what it does not load."""

from __future__ import annotations

import subprocess
import sys

import jobwire
import jobwire.client
from tests.support import clause


def test_the_public_names_exist() -> None:
    assert jobwire.__all__ == [
        *("App", "AsyncClient", "BullQueue", "ChildFailed", "Client", "ClientError"),
        *("Context", "Fail"),
        *("FailedJob", "JobSuspended", "NewJob", "Postpone", "RateLimit", "Retry"),
        *("SignalTimeout", "StepFailed", "StepInterrupted", "SyncBullQueue", "SyncContext", "Task"),
        "WaitForChildren",
        "__version__",
    ]
    for module in (jobwire, jobwire.client):
        assert sorted(module.__all__) == module.__all__
        assert [name for name in module.__all__ if not hasattr(module, name)] == []


@clause("O-10")
def test_o10_the_light_names_need_no_heavy_part() -> None:
    """Client, worker and toolkit come with the light install, which has none of these."""
    source = (
        "import sys, jobwire\n"
        "for name in jobwire.__all__: getattr(jobwire, name)\n"
        "import jobwire.valkey\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stdout.split())
    heavy = {"fastapi", "pydantic", "starlette", "uvicorn", "prometheus_client", "opentelemetry"}
    assert "httpx" in loaded
    assert loaded & (heavy | {"obstore", "xllamacpp"}) == set()
