"""A worker whose jobs are taken over in the middle of their text."""

from __future__ import annotations

from jobwire import App
from tests.page.app import WORDS, speak

__all__ = ["WORDS", "app"]

app = App("readings")
app.handler("read aloud", example={"gate": ""})(speak)
