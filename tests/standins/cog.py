"""A real cog server with a small model: it inverts the colours of a picture.

cog comes from `tests/support/thirdparty.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final, cast

import pytest

from jobwire.local import free_port
from jobwire.systems.predictions.demo.cog import is_ready
from tests.support.program import Program
from tests.support.shared_server import Facts, shared_server
from tests.support.thirdparty import python_with_cog
from tests.support.wait import wait_until_sync

MODEL: Final = """
import tempfile
from cog import BaseRunner, Input, Path
from PIL import Image, ImageOps


class Predictor(BaseRunner):
    def run(self, image: Path = Input(), prompt: str = Input(default="")) -> list[Path]:
        if prompt.startswith("fail"):
            raise RuntimeError(prompt)
        picture = ImageOps.invert(Image.open(str(image)).convert("RGB"))
        outputs = []
        for _ in range(2 if prompt == "two" else 1):
            outputs.append(Path(tempfile.mkdtemp()) / "out.png")
            picture.save(str(outputs[-1]))
        return outputs
"""


@contextlib.contextmanager
def cog_server(folder: Path) -> Generator[Facts]:
    """Start cog with the model; its worker is found by PATH."""
    python, port = python_with_cog(), free_port()
    model, temporary = folder / "model", folder / "temporary"
    model.mkdir(exist_ok=True)
    temporary.mkdir(exist_ok=True)
    (model / "predict.py").write_text(MODEL)
    variables = {
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "PORT": str(port),
        "COG_PREDICT_TYPE_STUB": "predict.py:Predictor",
        "COG_LOG_LEVEL": "warning",
        "TMPDIR": str(temporary),  # each prediction leaves a folder there
    }
    command = [python, "-m", "cog.server.http", "--host", "127.0.0.1"]
    with Program(command=command, env=variables, cwd=model):
        facts = {"url": f"http://127.0.0.1:{port}"}
        wait_until_sync(lambda: answers(facts), "cog to be ready", timeout_s=60)
        yield facts


def answers(facts: Facts) -> bool:
    """Whether cog is set up and waits for predictions."""
    return is_ready(facts["url"])


@pytest.fixture(scope="session")
def cog_url(_servers_folder: Path) -> Iterator[str]:
    """A real cog server, shared by all workers."""
    with shared_server(_servers_folder, "cog", cog_server, answers) as facts:
        yield facts["url"]


def predict(url: str, given: object) -> dict[str, object]:
    """Run one prediction and wait for its end; cog takes one at a time."""

    def ask() -> dict[str, object] | None:
        request = urllib.request.Request(
            f"{url}/predictions",
            json.dumps({"input": given}).encode(),
            {"content-type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return cast("dict[str, object]", json.load(answer))
        except urllib.error.HTTPError as refused:
            with refused:
                if refused.code == 409:
                    return None  # at capacity
                raise

    answer = wait_until_sync(ask, "cog to have a free slot", timeout_s=60)
    assert answer is not None
    return answer
