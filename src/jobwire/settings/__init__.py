"""Settings: one typed tree of the packages' own settings classes.

    tree      the tree: one line per section
    schema    the sections and settings, read from the classes
    sources   YAML, environment, command line
    values    text to typed value and back
    load      merges the sources and reports all faults at once
    page      writes docs/settings.md

To add a setting, add a field to a package's class; to add a section, add a line to `tree.py`. Used
by the CLI and by `wiring`; a package sees only its own class.
"""

from jobwire.settings.load import CONFIG_FILE, Loaded, SettingsError, load
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
