"""The libraries of the extra `images`, which only a worker process loads."""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from jobwire.handlers.photo.errors import SetupError


def library(name: str) -> ModuleType:
    """Load it; SetupError if it is not installed. What else keeps it from being loaded, such as too
    little memory, is raised as it is."""
    if find_spec(name) is None:
        raise SetupError(f"{name} is not installed; run: pip install 'jobwire[images]'")
    return import_module(name)
