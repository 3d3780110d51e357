"""XML is parsed without entities; each element has its position in the bytes."""

from __future__ import annotations

import pytest

from jobwire.objects import Unexpected
from jobwire.objects.xml import parse


def test_elements_have_text_and_position() -> None:
    document = (
        b'<?xml version="1.0"?>\n<R xmlns="u"><A><B> x &amp; y </B></A><A/><s:C>\xc3\xbc</s:C></R>'
    )
    root = parse(document)
    assert root.name == "R"
    assert root.value("A", "B") == "x & y"
    assert root.value("A", "missing") == ""
    assert root.value("C") == "ü"
    assert [document[each.start : each.end] for each in root.children] == [
        b"<A><B> x &amp; y </B></A>",
        b"<A/>",
        b"<s:C>\xc3\xbc</s:C>",
    ]


def test_same_as_ignores_the_order() -> None:
    document = parse(b"<R><A>1</A><B>2</B><A>3</A></R>")
    assert document.same_as(parse(b"<R> <B>2</B><A>3</A>\n<A>1</A></R>"))
    assert not document.same_as(parse(b"<R><A>1</A><B>2</B></R>"))
    assert not document.same_as(parse(b"<R><A>1</A><B>2</B><A>3</A><A>3</A></R>"))


@pytest.mark.parametrize(
    "document",
    [
        b'<!DOCTYPE r [<!ENTITY a "boom">]><r>&a;</r>',
        b'<!DOCTYPE r [<!ENTITY f SYSTEM "file:///etc/passwd">]><r>&f;</r>',
        b'<!DOCTYPE r SYSTEM "http://127.0.0.1/x.dtd"><r/>',
    ],
)
def test_a_document_type_is_rejected(document: bytes) -> None:
    with pytest.raises(Unexpected, match="document type declaration"):
        parse(document)


@pytest.mark.parametrize("document", [b"", b"<a>", b"not xml", b"<a>&b;</a>", b"\xff\xfe\x00"])
def test_invalid_xml_raises_in_one_line(document: bytes) -> None:
    with pytest.raises(Unexpected, match=r"^the store sent XML that cannot be read \([^\n]*\)$"):
        parse(document)
