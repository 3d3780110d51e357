"""Settings: one typed tree, composed of the rooms' own classes.

    tree      the tree itself: a line a room
    schema    what there is, read from the rooms' classes
    sources   YAML, environment, command line
    values    text to typed value and back
    load      all of them together, with every fault at once

Adding a setting means adding a field to a room's class; adding a room means adding a line to
`tree.py`. Read by the CLI and by `wiring`; a room only ever sees its own class.
"""

from jobwire.settings.load import CONFIG_FILE, Loaded, SettingsError, load
from jobwire.settings.schema import Leaf, Section, sections, words
from jobwire.settings.tree import Settings
from jobwire.settings.values import show

__all__ = [
    "CONFIG_FILE",
    "Leaf",
    "Loaded",
    "Section",
    "Settings",
    "SettingsError",
    "load",
    "sections",
    "show",
    "words",
]
