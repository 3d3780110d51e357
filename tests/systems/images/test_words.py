"""The names of the image wire are spelled in contract.py only (I-5), and in its scripts."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import jobwire
from jobwire.systems.images import contract, schema
from jobwire.systems.images.contract import (
    CancelState,
    ImageErrorCode,
    ImageKeys,
    ResultField,
    ResultStatus,
    ReviewField,
    Stage,
    StatusField,
)
from jobwire.systems.images.follow import ImageEvent
from jobwire.systems.images.scripts import SCRIPTS
from tests.support import clause

SOURCE = Path(jobwire.__file__).parent
WIRE = SOURCE / "systems" / "images"
KEY = re.compile(r"image:(status|upload|result|canceled)")
OWN = {*ImageErrorCode, contract.GROUP, contract.RETIRED_GROUP, "storage_key", "processed_at"}
"""Names that only this wire has; the others ("failed", "status") are common words."""
WORDS = {*Stage, *ResultStatus} - {"processing", "failed", "done", "queued"}
# The codes of the photo pipeline are those of the wire; the pipeline does not import the wire.
ALLOWED = {
    WIRE / "contract.py",
    SOURCE / "handlers" / "photo" / "errors.py",
    # T-8: the default prefix of the toolkit's progress tracker.
    SOURCE / "valkey" / "progress.py",
    # The columns of the table, the claims of the token and the JSON of the client.
    *(WIRE / name for name in ("records.py", "tokens.py", "results.py", "spool.py")),
    *(SOURCE / "client").glob("image*.py"),
    *(WIRE / "migrations" / "versions").glob("*.py"),
}
# Pages and texts for people name keys.
PROSE = {SOURCE / "cli" / "images_batch.py", SOURCE / "systems" / "images" / "doctor.py"}


def literals(file: Path) -> Iterator[tuple[int, str]]:
    """Every text in the code of a file, without docstrings."""
    tree = ast.parse(file.read_text())
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.lineno, node.value


def faults(file: Path, *, inside: bool = False) -> list[str]:
    """Names of the wire that are spelled out where they must not be."""
    return [
        f"{file.name}:{line} spells {text!r}; take it from contract.py"
        for line, text in literals(file)
        if text in OWN or KEY.match(text) or (inside and text in WORDS)
    ]


@clause("I-5")
def test_i05_the_names_of_the_wire_are_spelled_in_the_contract_only() -> None:
    files = [file for file in SOURCE.rglob("*.py") if file not in ALLOWED | PROSE]
    assert len(files) > 100
    assert [
        fault
        for file in files
        for fault in faults(file, inside=file.is_relative_to(WIRE) and "http" not in file.parts)
    ] == []


@clause("I-5")
@pytest.mark.parametrize(
    "planted",
    [
        'key = "image:status:x"',
        'key = f"image:upload:{image_id}"',
        'stream = "image:result"',
        'group = "api-workers"',
        'code = "UPLOAD_FAILED"',
        'fields["storage_key"]',
    ],
)
def test_i05_a_planted_name_is_found(tmp_path: Path, planted: str) -> None:
    file = tmp_path / "planted.py"
    file.write_text(f'"""Prose may say image:result."""\n{planted}\n')
    assert len(faults(file)) == 1


@clause("I-5")
def test_i05_a_planted_stage_is_found_inside_the_wire(tmp_path: Path) -> None:
    file = tmp_path / "planted.py"
    file.write_text('stage = "validating"')
    assert len(faults(file, inside=True)) == 1
    assert faults(file) == [], "elsewhere it is plain English"


QUOTED = re.compile(r"'((?:[^'\\\n]|\\.)*)'")
COMMANDS = {
    *("EXISTS", "HMGET", "HSET", "HGET", "HDEL", "PEXPIRE", "SET", "GET", "DEL", "NX", "PX"),
    *("XADD", "XLEN", "XINFO", "XPENDING", "XRANGE", "XTRIM", "XDEL", "GROUPS", "COUNT", "MAXLEN"),
    *("MINID", "last-delivered-id", "name", "pending"),
}


@clause("I-5")
def test_i05_every_literal_of_a_script_is_of_the_contract_or_the_server() -> None:
    answers = {word for script in SCRIPTS.values() for word in script.returns}
    known = {*StatusField, *Stage, *ResultField, *ImageErrorCode, *CancelState, *ReviewField}
    for file in (WIRE / "lua").glob("*.lua"):
        code = re.sub(r"--.*", "", file.read_text())
        words = {text for text in QUOTED.findall(code) if re.fullmatch(r"[\w:-]{2,}", text)}
        assert words - known - answers - COMMANDS == set(), file.name


@clause("I-1", "I-3", "I-4", "I-6")
def test_i01_the_contract_equals_the_source_document() -> None:
    keys = ImageKeys()
    assert keys.status("abc-123") == "image:status:abc-123"
    assert keys.upload("abc-123") == "image:upload:abc-123"
    assert (keys.result, contract.GROUP) == ("image:result", "api-workers")
    assert contract.GUARD_VALUE == "claimed"
    assert (contract.STATUS_TTL_S, contract.GUARD_TTL_S) == (3600, 3600)
    assert [*Stage] == [
        *("queued", "validating", "decoding", "processing", "encoding", "uploading"),
        *("done", "failed"),
    ]
    assert [*StatusField] == ["stage", "progress", "updated_at", "error"]
    assert len(contract.SUCCESS_FIELDS) == 12
    assert (
        *("image_id", "status", "error_code", "error_message", "failed_at"),
    ) == contract.FAILURE_FIELDS
    assert [*ResultStatus] == ["processed", "failed"]
    assert {*ImageEvent} == {"processing", "ready", "failed"}
    document = schema.schema()
    assert set(document["$defs"]) == {
        *("image_status", "image_processed", "image_failed", "image_event"),
    }
    json.dumps(document)
