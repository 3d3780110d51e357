"""Lifecycle rules: merged with other programs' rules, listed (P-6)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobwire.objects import Bucket, BucketMissing, Unexpected
from jobwire.objects.lifecycle import (
    Applied,
    LifecycleUnchanged,
    LifecycleUnsupported,
    Rule,
    apply,
    merge,
    show,
)
from jobwire.objects.xml import parse
from tests.support import clause
from tests.support.s3 import boto_client, rclone

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import LifecycleRuleUnionTypeDef

RULES = [
    Rule("ExpireTasks", "tasks/", 2),
    Rule("ExpireInputImages", "images/input/", 14),
    Rule("ExpireOutputImages", "images/output/", 14),
]
OTHER_RULES: list[LifecycleRuleUnionTypeDef] = [
    {
        "ID": "their-logs",
        "Filter": {"And": {"Prefix": "logs/", "Tags": [{"Key": "keep", "Value": "no & never"}]}},
        "Status": "Disabled",
        "Expiration": {"Days": 30},
    },
    {
        "ID": "ExpireTasksOfTheirs",
        "Filter": {"Prefix": "their-tasks/"},
        "Status": "Enabled",
        "Expiration": {"Days": 9},
    },
]


def rules_on_the_server(bucket: Bucket) -> dict[str, object]:
    """The rules as another client reads them."""
    raw = boto_client(bucket.config)
    response = raw.get_bucket_lifecycle_configuration(Bucket=bucket.config.bucket)
    return {rule.get("ID", ""): rule for rule in response["Rules"]}


@clause("P-6")
async def test_p6_the_rules_are_those_of_the_source(own_bucket: Bucket) -> None:
    assert await apply(own_bucket.calls, RULES) == Applied(kept=0)
    assert rules_on_the_server(own_bucket) == {
        rule.id: {
            "ID": rule.id,
            "Filter": {"Prefix": rule.prefix},
            "Status": "Enabled",
            "Expiration": {"Days": rule.days},
            "NoncurrentVersionExpiration": {"NoncurrentDays": 1},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
        }
        for rule in RULES
    }


@clause("P-6")
async def test_p6_rules_of_other_programs_stay(own_bucket: Bucket) -> None:
    raw = boto_client(own_bucket.config)
    raw.put_bucket_lifecycle_configuration(
        Bucket=own_bucket.config.bucket, LifecycleConfiguration={"Rules": OTHER_RULES}
    )
    theirs = rules_on_the_server(own_bucket)
    assert await apply(own_bucket.calls, RULES) == Applied(kept=2)
    after = rules_on_the_server(own_bucket)
    assert set(after) == {"their-logs", "ExpireTasksOfTheirs", *(rule.id for rule in RULES)}
    assert {each: after[each] for each in theirs} == theirs


@clause("P-6")
async def test_p6_a_changed_rule_replaces_the_rule_of_its_id(own_bucket: Bucket) -> None:
    await apply(own_bucket.calls, RULES)
    assert await apply(own_bucket.calls, RULES) == LifecycleUnchanged()
    longer = [replace(RULES[0], days=3), *RULES[1:]]
    assert await apply(own_bucket.calls, longer) == Applied(kept=0)
    shown = await show(own_bucket.calls)
    assert not isinstance(shown, LifecycleUnsupported)
    assert sorted((rule.id, rule.prefix, rule.days, rule.enabled) for rule in shown) == [
        ("ExpireInputImages", "images/input/", 14, True),
        ("ExpireOutputImages", "images/output/", 14, True),
        ("ExpireTasks", "tasks/", 3, True),
    ]
    assert all(parse(rule.xml.encode()).value("ID") == rule.id for rule in shown)


@clause("P-6")
async def test_p6_a_bucket_without_rules_shows_none(own_bucket: Bucket) -> None:
    assert await show(own_bucket.calls) == ()
    missing = Bucket(replace(own_bucket.config, bucket="nowhere"))
    with pytest.raises(BucketMissing):
        await show(missing.calls)


@clause("P-6")
async def test_p6_a_store_without_lifecycle_is_unsupported(tmp_path: Path) -> None:
    with rclone(tmp_path) as config:
        calls = Bucket(config).calls
        assert isinstance(await apply(calls, RULES), LifecycleUnsupported)
        assert isinstance(await show(calls), LifecycleUnsupported)


@clause("P-6")
def test_p6_all_other_bytes_of_the_document_stay() -> None:
    head = (
        b'<?xml version="1.0" encoding="UTF-8"?>\n<!-- ours, do not touch -->\n'
        b'<LifecycleConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">\n  '
    )
    other = (
        "<Rule  a='1'><ID>x &amp; y</ID><Prefix>old/</Prefix><Status>Enabled</Status>"
        "<Novelty><Deep/>ü</Novelty></Rule  >\n  "
    ).encode()
    nameless = b"<Rule><Filter/><Status>Disabled</Status></Rule>"
    own = b"<Rule><ID>ExpireTasks</ID><Status>Disabled</Status></Rule>"
    tail = b"\n</LifecycleConfiguration>"
    merged = merge(head + other + own + nameless + tail, RULES[:1])
    assert merged == head + other + nameless + b"\n" + RULES[0].to_xml().encode() + tail[1:]


def test_rules_with_namespace_prefixes_are_rejected() -> None:
    document = b'<a:LifecycleConfiguration xmlns:a="u"><a:Rule/></a:LifecycleConfiguration>'
    with pytest.raises(Unexpected, match="merge them by hand"):
        merge(document, RULES)


def test_merging_into_no_document_writes_the_rules_alone() -> None:
    root = parse(merge(b"", RULES))
    assert [rule.value("ID") for rule in root.all("Rule")] == [rule.id for rule in RULES]


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        (("", "tasks/", 2), "1 to 255 characters"),
        (("x" * 256, "tasks/", 2), "1 to 255 characters"),
        (("All", "", 2), "needs a prefix that ends with a slash"),
        (("Half", "tasks", 2), "needs a prefix that ends with a slash"),
        (("Now", "tasks/", 0), "at least 1 day, not 0"),
    ],
)
def test_an_invalid_rule_is_rejected(rule: tuple[str, str, int], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        Rule(*rule)
