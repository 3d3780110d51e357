"""Settings: one typed tree of the packages' own settings classes.

    tree      the tree: one line per section
    schema    the sections and settings, read from the classes
    sources   YAML, environment, command line
    values    text to typed value and back
    merge     merges the sources and reports all faults at once
    environment  some sections from the environment alone
    page      writes docs/settings.md

To add a setting, add a field to a package's class; to add a section, add a line to `tree.py`. Used
by the CLI and by `programs`; a package sees only its own class.
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from jobwire.settings.merge import CONFIG_FILE, Loaded, SettingsError, load
    from jobwire.settings.schema import Leaf, Section, descriptions, sections
    from jobwire.settings.tree import Settings
    from jobwire.settings.values import show

__all__ = [
    "CONFIG_FILE",
    "Leaf",
    "Loaded",
    "Section",
    "Settings",
    "SettingsError",
    "descriptions",
    "load",
    "sections",
    "show",
]

# Loaded on first use: `environment` needs neither the whole tree nor YAML.
_MODULES: Final = {
    "CONFIG_FILE": "merge",
    "Leaf": "schema",
    "Loaded": "merge",
    "Section": "schema",
    "Settings": "tree",
    "SettingsError": "merge",
    "descriptions": "schema",
    "load": "merge",
    "sections": "schema",
    "show": "values",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
