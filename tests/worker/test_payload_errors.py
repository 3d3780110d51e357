"""An invalid payload is refused with the location and a hint."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from jobwire.worker import App
from jobwire.worker.signature import InvalidPayload
from tests.support import clause


class Turn(msgspec.Struct, forbid_unknown_fields=True):
    role: Literal["user", "system"]


class Talk(msgspec.Struct, forbid_unknown_fields=True):
    turns: list[Turn] = []
    temperature: float | None = None
    size: Literal["small", "large"] | None = None


def refused(payload: object) -> str:
    app = App()

    @app.handler("talk")
    async def talk(payload: Talk) -> None: ...

    with pytest.raises(InvalidPayload) as found:
        app.handlers["talk"].signature.check(payload)  # pyright: ignore[reportArgumentType] - wrong on purpose
    return str(found.value)


@clause("J-36")
@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({"temprature": 1}, "unknown field `temprature`; did you mean `temperature`?"),
        ({"x": 1}, "unknown field `x`; it takes: turns, temperature, size"),
        (
            {"turns": [{"role": "king"}]},
            "payload.turns[0].role: invalid enum value 'king'; it is one of: 'system', 'user'",
        ),
        ({"turns": [{"rôle": "user"}]}, "payload.turns[0]: object contains unknown field `rôle`"),
        ({"size": "tiny"}, "payload.size: invalid enum value 'tiny'; it is one of: 'large', 'sm"),
        ({"temperature": "x"}, "payload.temperature: expected `float | null`, got `str`"),
        ([], "payload: expected `object`, got `array`"),
        ({"_raw": "{'turns': 1}"}, "payload: it is not a JSON object"),
    ],
)
def test_j36_an_invalid_payload_gets_a_hint(payload: object, words: str) -> None:
    assert words in refused(payload)
