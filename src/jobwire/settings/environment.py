"""Settings from the environment alone: for programs that start without a file, such as functions.

Reads only the sections of the class that it is given; other `JOBWIRE_…` variables are left alone.
Imports none of the other sections.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from jobwire.settings.schema import Section, sections
from jobwire.settings.values import BadValue, check, convert_setting

T = TypeVar("T")


def from_environment(root: type[T], environ: Mapping[str, str]) -> T:
    """Build a dataclass of sections; ValueError with all faults, one line each."""
    faults: list[str] = []
    defaults = root()
    built = {
        section.path: _section(section, getattr(defaults, section.path), environ, faults)
        for section in sections(root)
        if section.path
    }
    if faults:
        raise ValueError("\n".join(faults))
    return root(**built)


def _section(
    section: Section, default: Any, environ: Mapping[str, str], faults: list[str]
) -> object:
    values: dict[str, object] = {}
    for leaf in section.leaves:
        name = next(
            (each for each in (leaf.env_name, *leaf.foreign_names) if environ.get(each)), ""
        )
        if not name:
            continue
        try:
            values[leaf.name] = convert_setting(leaf, environ[name])
        except BadValue as bad:
            faults += [f"{name}{inside}: {problem}" for inside, problem in bad.faults]
    built = dataclasses.replace(default, **values)
    faults += [f"{section.place(name)}: {problem}" for name, problem in check(built)]
    return built
