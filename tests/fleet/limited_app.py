"""A handler with a limit beside one without."""

from __future__ import annotations

from jobwire import App
from tests.fleet.app import count, gated

app = App()
app.handler("narrow", concurrency=1)(gated)
app.handler("wide")(count)
