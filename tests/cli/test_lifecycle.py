"""`jobwire lifecycle`, and the lifecycle checks of `jobwire doctor` (O-7, P-6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobwire.doctor.bucket import judge
from jobwire.objects import Bucket, BucketConfig
from jobwire.objects.lifecycle import LifecycleUnsupported, Rule, StoredRule
from tests.cli.runner import jobwire
from tests.support import clause
from tests.support.s3 import boto_client

RULES = (Rule("ExpireTasks", "tasks/", 2), Rule("ExpireInputImages", "images/input/", 14))


def env(config: BucketConfig) -> dict[str, str]:
    return {
        "JOBWIRE_OBJECTS_ENDPOINT": config.endpoint,
        "JOBWIRE_OBJECTS_BUCKET": config.bucket,
        "JOBWIRE_OBJECTS_ACCESS_KEY": config.access_key,
        "JOBWIRE_OBJECTS_SECRET_KEY": config.secret_key,
    }


def output_of(folder: Path, config: BucketConfig, *words: str) -> list[dict[str, Any]]:
    """The JSON lines of a command that must succeed."""
    done = jobwire(*words, cwd=folder, env=env(config))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def found(folder: Path, config: BucketConfig) -> dict[str, dict[str, str]]:
    done = jobwire("doctor", cwd=folder, env=env(config))
    return {line["check"]: line for line in map(json.loads, done.stdout.splitlines())}


@clause("O-7", "O-2", "P-6")
def test_o7_the_doctor_reports_missing_rules_and_its_fix_works(
    tmp_path: Path, own_bucket: Bucket
) -> None:
    config = own_bucket.config
    assert output_of(tmp_path, config, "lifecycle", "show") == []
    missing = found(tmp_path, config)["bucket lifecycle"]
    assert missing["verdict"] == "note"
    assert "ExpireTasks, ExpireInputImages, ExpireOutputImages" in missing["found"]
    assert missing["fix"] == "jobwire lifecycle apply"
    assert output_of(tmp_path, config, *missing["fix"].split()[1:]) == [
        {"bucket": config.bucket, "applied": 4, "kept": 0}
    ]
    assert output_of(tmp_path, config, "lifecycle", "apply") == [
        {"bucket": config.bucket, "applied": 0}
    ]
    assert found(tmp_path, config)["bucket lifecycle"]["verdict"] == "ok"
    shown = {rule["id"]: rule for rule in output_of(tmp_path, config, "lifecycle", "show")}
    assert (shown["ExpireTasks"]["prefix"], shown["ExpireTasks"]["days"]) == ("tasks/", 2)
    boto_client(config).put_bucket_lifecycle_configuration(
        Bucket=config.bucket,
        LifecycleConfiguration={
            "Rules": [
                {
                    "ID": "all-of-it",
                    "Filter": {"Prefix": ""},
                    "Status": "Enabled",
                    "Expiration": {"Days": 7},
                }
            ]
        },
    )
    other = found(tmp_path, config)["bucket other rules"]
    assert other["verdict"] == "fault"
    removed = "videos/, images/input/, images/output/"
    assert f"the rule all-of-it removes {removed} after 7 days" in other["found"]
    assert other["fix"]


@clause("O-2", "P-6")
def test_p6_a_sweep_removes_only_expired_objects(tmp_path: Path, own_bucket: Bucket) -> None:
    raw = boto_client(own_bucket.config)
    raw.put_object(Bucket=own_bucket.config.bucket, Key="tasks/new.json", Body=b"{}")
    swept = output_of(tmp_path, own_bucket.config, "lifecycle", "sweep")
    assert swept == [{"bucket": own_bucket.config.bucket, "objects": 0, "uploads": 0}]
    assert raw.head_object(Bucket=own_bucket.config.bucket, Key="tasks/new.json")


@clause("O-2")
def test_o2_lifecycle_without_a_bucket_is_one_line(tmp_path: Path) -> None:
    done = jobwire("lifecycle", "show", cwd=tmp_path)
    assert done.returncode == 2
    assert (
        done.stderr
        == "jobwire: no bucket is configured; set objects.endpoint, or run: jobwire up\n"
    )


def stored(name: str, prefix: str, days: int | None, *, enabled: bool = True) -> StoredRule:
    return StoredRule(name, enabled, prefix, days, "<Rule/>")


OURS = [stored("ExpireTasks", "tasks/", 2), stored("ExpireInputImages", "images/input/", 14)]


@clause("O-7")
@pytest.mark.parametrize(
    ("rules", "verdicts"),
    [
        (LifecycleUnsupported("501 NotImplemented"), ["note"]),
        (OURS, ["ok"]),
        ([OURS[0]], ["note"]),
        ([OURS[0], stored("ExpireInputImages", "images/input/", 14, enabled=False)], ["note"]),
        ([OURS[0], stored("ExpireInputImages", "images/input/", 99)], ["note"]),
        ([*OURS, stored("theirs", "logs/", 1)], ["ok"]),
        ([*OURS, stored("theirs", "", 30)], ["ok"]),
        ([*OURS, stored("theirs", "", 13)], ["ok", "fault"]),
        ([*OURS, stored("theirs", "", 13, enabled=False)], ["ok"]),
        ([*OURS, stored("theirs", "images/", 1)], ["ok", "fault"]),
        ([*OURS, stored("theirs", "images/input/2026/", 1)], ["ok", "fault"]),
        ([*OURS, stored("theirs", "", None)], ["ok"]),
    ],
)
def test_o7_verdicts_about_lifecycle_rules(
    rules: list[StoredRule] | LifecycleUnsupported, verdicts: list[str]
) -> None:
    judged = list(judge(rules, RULES))
    assert [finding.verdict for finding in judged] == verdicts
    assert all(finding.fix and finding.why for finding in judged if finding.verdict != "ok")
