"""Checks of the bucket: reachability, conditional writes, lifecycle rules.

The probe writes a few objects under a random key and removes them.
"""

from collections.abc import AsyncIterator, Iterator, Sequence

from jobwire.doctor.finding import Finding
from jobwire.objects import Bucket, BucketConfig, ObjectsError, StoreRefused, lifecycle
from jobwire.objects.lifecycle import LifecycleUnsupported, Rule, StoredRule
from jobwire.objects.probe import probe


async def examine(
    config: BucketConfig, rules: Sequence[Rule], *, fix: str
) -> AsyncIterator[Finding]:
    """Check one bucket against its lifecycle rules; `fix` is for a bucket that is not reachable."""
    bucket = Bucket(config)
    try:
        await bucket.ping()
        yield Finding("bucket", "ok", config.where)
        await probe(bucket)
        yield Finding("bucket promises", "ok", "conditional writes work")
        for finding in judge(await lifecycle.show(bucket.calls), rules):
            yield finding
    except StoreRefused as error:
        yield Finding(
            "bucket promises",
            "fault",
            str(error),
            "two writers could both succeed where only one may",
            "use another store: SeaweedFS, MinIO and AWS support them",
        )
    except ObjectsError as error:
        yield Finding(
            "bucket", "unreachable", str(error), "images and predictions are stored there", fix
        )


def judge(
    stored: Sequence[StoredRule] | LifecycleUnsupported, rules: Sequence[Rule]
) -> Iterator[Finding]:
    """Compare the stored rules with the expected ones; find other rules that remove our objects."""
    if isinstance(stored, LifecycleUnsupported):
        yield Finding(
            "bucket lifecycle",
            "note",
            f"the store has none ({stored.reason})",
            "old photos and tasks are never removed",
            "run it from a timer: jobwire lifecycle sweep",
        )
        return
    enabled = {each.id: each for each in stored if each.enabled}
    if missing := [rule.id for rule in rules if not _matches(enabled.get(rule.id), rule)]:
        yield Finding(
            "bucket lifecycle",
            "note",
            f"missing or different: {', '.join(missing)}",
            "old photos and tasks are never removed, or too early",
            "jobwire lifecycle apply",
        )
    else:
        yield Finding("bucket lifecycle", "ok", f"{len(rules)} rules of ours")
    ours = {rule.id for rule in rules}
    for other in enabled.values():
        affected = [rule for rule in rules if other.id not in ours and _removes(other, rule)]
        if affected:
            prefixes = ", ".join(rule.prefix for rule in affected)
            yield Finding(
                "bucket other rules",
                "fault",
                f"the rule {other.id or '(unnamed)'} removes {prefixes} after {other.days} days",
                "objects are removed while they are still needed",
                "give that rule a prefix of its own, or use another bucket",
            )


def _matches(stored: StoredRule | None, rule: Rule) -> bool:
    return stored is not None and (stored.prefix, stored.days) == (rule.prefix, rule.days)


def _removes(other: StoredRule, rule: Rule) -> bool:
    """Whether another rule removes objects earlier than our rule."""
    if other.days is None or other.days >= rule.days:
        return False
    return rule.prefix.startswith(other.prefix) or other.prefix.startswith(rule.prefix)
