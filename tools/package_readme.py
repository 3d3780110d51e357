"""Hatchling's hook for the readme of the package: README.md without links into the repository.

Where the package is shown, neither the pages nor the pictures of the repository are beside it.
"""

import re
from pathlib import Path
from typing import Final

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PICTURE: Final = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n\n?", re.MULTILINE)
_LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:)[^)\s]*\)")
_NOTE: Final = re.compile(r"^<!--.*?-->\n", re.MULTILINE)


def without_local_links(text: str) -> str:
    """The text with its links to files replaced by their words, and without local pictures."""
    return _LINK.sub(r"\1", _PICTURE.sub("", _NOTE.sub("", text)))


class PackageReadme(MetadataHookInterface):
    """Sets `project.readme`."""

    def update(self, metadata: dict[str, object]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": without_local_links(text),
        }
