"""S3's XML responses as small trees, parsed by expat without entities.

Used by `versions.py` and `lifecycle.py`. Each element has its position in the bytes, so that a
document can be changed in one place and kept unchanged elsewhere. A document type declaration is
rejected: it allows entity expansion and file inclusion, and S3 has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from jobwire.objects.errors import Unexpected


@dataclass(slots=True)
class Element:
    """`name` without namespace prefix; the bytes from `start` to `end` are the element."""

    name: str
    start: int
    end: int = 0
    text: str = ""
    children: list[Element] = field(default_factory=list["Element"])

    def all(self, name: str) -> Iterator[Element]:
        """The children of that name."""
        return (child for child in self.children if child.name == name)

    def value(self, *path: str) -> str:
        """The text of the first element along a path of names, or nothing."""
        here: Element | None = self
        for name in path:
            here = next(here.all(name), None) if here else None
        return here.text.strip() if here else ""

    def same_as(self, other: Element) -> bool:
        """Whether both have the same content, in any order."""
        if (self.name, self.text.strip()) != (other.name, other.text.strip()):
            return False
        rest = list(other.children)
        for child in self.children:
            match = next((each for each in rest if child.same_as(each)), None)
            if match is None:
                return False
            rest.remove(match)
        return not rest


def parse(document: bytes) -> Element:
    """Parse a document; `Unexpected` if it is not well-formed."""
    parser = expat.ParserCreate()
    top = Element("", 0)
    open_elements = [top]

    def start(tag: str, _attributes: object) -> None:
        element = Element(tag.rpartition(":")[2], parser.CurrentByteIndex)
        open_elements[-1].children.append(element)
        open_elements.append(element)

    def end(_tag: str) -> None:
        here = parser.CurrentByteIndex  # at an end tag, or after an element without one
        closed = document.startswith(b"</", here)
        open_elements.pop().end = document.index(b">", here) + 1 if closed else here

    def text(data: str) -> None:
        open_elements[-1].text += data

    def refuse(*_: object) -> None:
        raise Unexpected("the store sent XML with a document type declaration; it was not read")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(document, True)
    except expat.ExpatError as error:
        raise Unexpected(f"the store sent XML that cannot be read ({error})") from error
    return top.children[0]
