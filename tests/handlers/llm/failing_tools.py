"""An app with tools that fail: for a worker as a program."""

import time

from jobwire import App

app = App()


@app.tool
def count_apples(number: int) -> int:
    """Count apples."""
    return number


@app.tool
def broken() -> None:
    """Does not work."""
    raise ValueError("hush: not for everybody's eyes")


@app.tool
def slow() -> None:
    """Sleeps."""
    time.sleep(30)
