"""Lifecycle rules by which the store removes old objects: applied and listed.

Called by `jobwire lifecycle`. S3 has one document of rules per bucket, and a write replaces all of
it: jobwire's rules are merged into the current document by their IDs, and the bytes of other rules
do not change. The write has no condition: apply from one place at a time. A store without
lifecycle is swept instead (`sweep.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from jobwire.objects.errors import Unexpected
from jobwire.objects.signed import SignedCalls
from jobwire.objects.versions import content_md5
from jobwire.objects.xml import Element, parse

NAMESPACE: Final = "http://s3.amazonaws.com/doc/2006-03-01/"
# Every replacement leaves an old version in a versioned bucket.
NONCURRENT_DAYS: Final = 1
ABORT_DAYS: Final = 1

_QUERY: Final = {"lifecycle": ""}
_ROOT: Final = "LifecycleConfiguration"
_UNSUPPORTED: Final = (400, 405, 409, 501)
# A write without this header resets the bucket's setting to its default.
_SIZE_HEADER: Final = "x-amz-transition-default-minimum-object-size"


@dataclass(frozen=True, slots=True)
class Rule:
    """Objects under `prefix` expire after `days`; old versions and unfinished uploads sooner."""

    id: str
    prefix: str
    days: int

    def __post_init__(self) -> None:
        if not 1 <= len(self.id) <= 255:
            raise ValueError(f"the rule's ID {self.id!r} must have 1 to 255 characters")
        # An empty prefix means the whole bucket, including objects of other programs.
        if not self.prefix.endswith("/"):
            raise ValueError(f"the rule {self.id} needs a prefix that ends with a slash")
        if self.days < 1:
            raise ValueError(f"the rule {self.id} needs at least 1 day, not {self.days}")

    def to_xml(self) -> str:
        return (
            f"<Rule><ID>{escape(self.id)}</ID>"
            f"<Filter><Prefix>{escape(self.prefix)}</Prefix></Filter>"
            "<Status>Enabled</Status>"
            f"<Expiration><Days>{self.days}</Days></Expiration>"
            "<NoncurrentVersionExpiration>"
            f"<NoncurrentDays>{NONCURRENT_DAYS}</NoncurrentDays>"
            "</NoncurrentVersionExpiration>"
            "<AbortIncompleteMultipartUpload>"
            f"<DaysAfterInitiation>{ABORT_DAYS}</DaysAfterInitiation>"
            "</AbortIncompleteMultipartUpload></Rule>"
        )


@dataclass(frozen=True, slots=True)
class StoredRule:
    """A rule of the bucket; `xml` is the whole rule."""

    id: str
    enabled: bool
    prefix: str
    days: int | None
    xml: str


@dataclass(frozen=True, slots=True)
class Applied:
    """The rules were written; `kept` is the number of other rules."""

    kept: int


@dataclass(frozen=True, slots=True)
class LifecycleUnchanged:
    """The bucket has the rules already; nothing was written."""


@dataclass(frozen=True, slots=True)
class LifecycleUnsupported:
    """The store has no lifecycle: sweep instead."""

    reason: str


async def apply(
    calls: SignedCalls, rules: Sequence[Rule]
) -> Applied | LifecycleUnchanged | LifecycleUnsupported:
    """Merge the rules into the bucket's document, and verify that all rules were stored."""
    current = await _read(calls)
    if isinstance(current, LifecycleUnsupported):
        return current
    document, size_setting = current
    if all(_has(document, rule) for rule in rules):
        return LifecycleUnchanged()
    merged = merge(document, rules)
    headers = {"content-md5": content_md5(merged), "content-type": "application/xml"}
    if size_setting:
        headers[_SIZE_HEADER] = size_setting
    answer = await calls.send(
        "PUT", query=_QUERY, headers=headers, body=merged, expect=_UNSUPPORTED
    )
    if answer.status in _UNSUPPORTED:
        return LifecycleUnsupported(f"{answer.status} {answer.code}".strip())
    after = await _read(calls)
    expected = _rules(merged)
    stored = [] if isinstance(after, LifecycleUnsupported) else _rules(after[0])
    for rule in expected:
        if not any(rule.same_as(each) for each in stored):
            raise Unexpected(
                f"{calls.config.where} accepted the lifecycle rules but did not store "
                f"{rule.value('ID') or 'one of them'} as written; check whether another tool "
                "writes them too"
            )
    return Applied(kept=len(expected) - len(rules))


async def show(calls: SignedCalls) -> tuple[StoredRule, ...] | LifecycleUnsupported:
    """All rules of the bucket."""
    current = await _read(calls)
    if isinstance(current, LifecycleUnsupported):
        return current
    document, _ = current
    return tuple(
        StoredRule(
            id=rule.value("ID"),
            enabled=rule.value("Status") == "Enabled",
            # A prefix outside of Filter is the old form; stores return it for old rules.
            prefix=rule.value("Filter", "Prefix")
            or rule.value("Filter", "And", "Prefix")
            or rule.value("Prefix"),
            days=int(days) if (days := rule.value("Expiration", "Days")) else None,
            xml=document[rule.start : rule.end].decode(),
        )
        for rule in _rules(document)
    )


def merge(document: bytes, rules: Sequence[Rule]) -> bytes:
    """Merge `rules` into a document by their IDs; all other bytes stay. Pure."""
    ours = "".join(rule.to_xml() for rule in rules).encode()
    if not _rules(document):
        return f'<{_ROOT} xmlns="{NAMESPACE}">'.encode() + ours + f"</{_ROOT}>".encode()
    root = parse(document)
    if not document.startswith(_ROOT.encode(), root.start + 1):
        raise Unexpected("the bucket's lifecycle rules use namespace prefixes; merge them by hand")
    ids = {rule.id for rule in rules}
    merged = b""
    here = 0
    for rule in root.all("Rule"):
        if rule.value("ID") in ids:
            merged += document[here : rule.start]
            here = rule.end
    last = document.rindex(b"</", 0, root.end)
    return merged + document[here:last] + ours + document[last:]


def _rules(document: bytes) -> list[Element]:
    return list(parse(document).all("Rule")) if document else []


def _has(document: bytes, rule: Rule) -> bool:
    merged = parse(rule.to_xml().encode())
    same_id = [each for each in _rules(document) if each.value("ID") == rule.id]
    return len(same_id) == 1 and same_id[0].same_as(merged)


async def _read(calls: SignedCalls) -> tuple[bytes, str] | LifecycleUnsupported:
    """The current document (empty if there is none) and the header that a write must repeat."""
    answer = await calls.send("GET", query=_QUERY, expect=(404, *_UNSUPPORTED))
    if answer.status == 404:
        return b"", ""
    if answer.status in _UNSUPPORTED:
        return LifecycleUnsupported(f"{answer.status} {answer.code}".strip())
    # Some stores ignore the query and return another document.
    root = parse(answer.body).name
    if root != _ROOT:
        return LifecycleUnsupported(f"the response is {root}")
    return answer.body, answer.headers.get(_SIZE_HEADER, "")
