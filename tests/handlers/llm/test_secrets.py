"""API keys never appear in errors, however a server repeats them."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest

from jobwire.job.errors import Fail
from tests.handlers.llm.conftest import KEY
from tests.handlers.llm.recorder import Bench
from tests.handlers.llm.upstream import Upstream, event, refuses, streams
from tests.support import clause

BenchAt = Callable[..., Bench]
ECHOES = {
    "plain": KEY,
    "upper": KEY.upper(),
    "base64": base64.b64encode(KEY.encode()).decode(),
    "bearer-base64": base64.b64encode(f"Bearer {KEY}".encode()).decode(),
    "inside": base64.b64encode(f"x{KEY}y".encode()).decode(),
}


@clause("J-51")
@pytest.mark.parametrize("form", ECHOES)
@pytest.mark.parametrize("padding", [0, 285, 296])
async def test_j51_no_part_of_a_key_is_in_an_error(
    bench_at: BenchAt, form: str, padding: int
) -> None:
    """The message is cut after 300 characters: also in the middle of the key."""
    text = "x" * padding + " " + ECHOES[form]
    async with Upstream(refuses(401, text), streams(event({"error": text}))) as upstream:
        for _ in range(2):
            with pytest.raises(Fail) as failed:
                await bench_at(upstream.url).run("chat", {"prompt": "Hi"})
            message = failed.value.message.lower()
            secret = ECHOES[form].lower()
            parts = [secret[at : at + 8] for at in range(len(secret) - 8)]
            assert not [part for part in parts if part in message]
