"""Forty requests over six domains for the task `tool` with the local model.

Each has the call that a person would make, or None where no tool fits or a value is missing. A
wrong call is worse than none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple


def get_weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> str:
    """The weather in a city now: temperature, rain, wind."""
    return f"{city} {unit}"


def convert_currency(
    amount: float, source: Literal["EUR", "USD", "GBP"], target: Literal["JPY", "CHF", "SEK"]
) -> float:
    """Convert an amount of money from one currency to another."""
    return amount


def add_numbers(a: float, b: float) -> float:
    """Add two numbers: the sum of a plus b."""
    return a + b


def delete_file(name: str) -> str:
    """Delete a file by its name."""
    return name


def set_light(room: Literal["kitchen", "bedroom", "garden"], brightness: int) -> str:
    """Set the brightness of the light in a room, in percent."""
    return room


def track_parcel(number: int) -> str:
    """Track a parcel: where a shipment is, by its tracking number."""
    return str(number)


TOOLS: dict[str, Callable[..., object]] = {
    each.__name__: each
    for each in (
        get_weather,
        convert_currency,
        add_numbers,
        delete_file,
        set_light,
        track_parcel,
    )
}


class ToolRequest(NamedTuple):
    prompt: str
    tool: str | None
    arguments: dict[str, Any]


def _r(prompt: str, tool: str | None = None, **arguments: Any) -> ToolRequest:
    return ToolRequest(prompt, tool, arguments)


REQUESTS = [
    _r("What is the weather in Paris?", "get_weather", city="Paris"),
    _r("How is the weather in Oslo in fahrenheit?", "get_weather", city="Oslo", unit="fahrenheit"),
    _r("Is it raining in Buenos Aires now?", "get_weather", city="Buenos Aires"),
    _r("Temperature in Tokyo please", "get_weather", city="Tokyo"),
    _r("Will I need an umbrella in London?", "get_weather", city="London"),
    _r("Weather forecast for Cape Town", "get_weather", city="Cape Town"),
    _r("Is it windy in Chicago?", "get_weather", city="Chicago"),
    _r("Convert 100 EUR to JPY", "convert_currency", amount=100, source="EUR", target="JPY"),
    _r(
        "How much are 1,250.50 USD in CHF?",
        "convert_currency",
        amount=1250.5,
        source="USD",
        target="CHF",
    ),
    _r("Change 20 GBP into SEK", "convert_currency", amount=20, source="GBP", target="SEK"),
    _r("Convert 2'000 EUR to CHF", "convert_currency", amount=2000, source="EUR", target="CHF"),
    _r("Convert 5 dollars to yen"),
    _r("Convert EUR to JPY"),
    _r("What is 17 plus 25?", "add_numbers", a=17, b=25),
    _r("Add -4 and 10", "add_numbers", a=-4, b=10),
    _r("Add 2 and 2", "add_numbers", a=2, b=2),
    _r("Sum of 1,000,000 and 1", "add_numbers", a=1_000_000, b=1),
    _r("Add 112233445566778899 and 1", "add_numbers", a=112233445566778899, b=1),
    _r("Add 0.1 and 0.25", "add_numbers", a=0.1, b=0.25),
    _r("Add seven"),
    _r("What is the sum of 5?"),
    _r("Delete the file report.txt", "delete_file", name="report.txt"),
    _r("Remove the file old-backup.zip", "delete_file", name="old-backup.zip"),
    _r("Do NOT delete the file report.txt"),
    _r("Don't remove notes.md"),
    _r("Never delete the file keys.pem"),
    _r("Set the kitchen light to 40 percent", "set_light", room="kitchen", brightness=40),
    _r("Dim the bedroom light to 5", "set_light", room="bedroom", brightness=5),
    _r("Garden light, brightness 100", "set_light", room="garden", brightness=100),
    _r("Set the light in the bathroom to 30 percent"),
    _r("Set the kitchen light"),
    _r("Brightness of the bedroom light to 12.5 percent"),
    _r("Track parcel 112233445566778899", "track_parcel", number=112233445566778899),
    _r("Where is my shipment 4711?", "track_parcel", number=4711),
    _r("Track my parcel with the tracking number 90210", "track_parcel", number=90210),
    _r("Where is my parcel?"),
    _r("Write a poem about the sea"),
    _r("Who was the first president of France?"),
    _r("Translate good morning into Spanish"),
    _r("Play some jazz"),
]
