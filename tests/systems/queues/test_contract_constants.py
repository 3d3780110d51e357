"""The wire's words are spelled in contract.py and in the scripts, which must agree with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import jobwire
from jobwire.systems.queues import contract
from jobwire.systems.queues.contract import (
    BullExtra,
    BullField,
    BullState,
    EventName,
    Keys,
    Opt,
    Refusal,
)
from jobwire.systems.queues.http.problems import refused
from jobwire.systems.queues.queue import _CANCEL_OUTCOMES  # pyright: ignore[reportPrivateUsage] - the words of a script
from jobwire.systems.queues.scripts import SCRIPTS
from tests.support import clause
from tests.systems.jobs.test_contract_constants import literals

PACKAGE = Path(jobwire.__file__).parent / "systems" / "queues"
LUA = PACKAGE / "lua"

WORDS = {str(word) for enum in (BullField, BullState, EventName, BullExtra) for word in enum}
# Common words, or a member of a JSON object that is spelled where it is read.
COMMON = {
    *{"name", "data", "delay", "progress", "delayed", "active", "parent", "priority", "message"},
    *{"timestamp", "failed", "completed", "waiting", "retry", "paused", "added", "unknown"},
    *(str(opt) for opt in Opt),
    *SCRIPTS,
    *(word for script in SCRIPTS.values() for word in script.returns),
}


def faults(file: Path) -> list[str]:
    return [
        f"{file.name}:{line} spells {text!r}; take it from contract.py"
        for line, text in literals(file)
        if text in WORDS - COMMON or text.startswith("bull:")
    ]


def test_wire_constants_are_spelled_in_the_contract_only() -> None:
    files = [file for file in PACKAGE.glob("*.py") if file.name != "contract.py"]
    assert len(files) > 8
    assert [fault for file in files for fault in faults(file)] == []


@pytest.mark.parametrize(
    "planted", ['f["failedReason"]', 'key = "bull:q:id"', 'e = "retries-exhausted"']
)
def test_a_planted_literal_is_found(tmp_path: Path, planted: str) -> None:
    file = tmp_path / "planted.py"
    file.write_text(planted)
    assert len(faults(file)) == 1


def code(file: Path) -> str:
    return re.sub(r"--.*", "", file.read_text())


@clause("B-16")
def test_b16_no_script_writes_forbidden_fields_or_events() -> None:
    """A hash with `attemptsMade` is retried without end by every official package."""
    for file in LUA.rglob("*.lua"):
        text = code(file)
        assert "emit(queue, 'error'" not in text
        # The word is a field of the event `retries-exhausted` and of nothing else.
        for line in text.splitlines():
            if "attemptsMade" in line:
                assert "'retries-exhausted'" in line, f"{file.name}: {line}"


def test_each_verb_has_its_script() -> None:
    work = "take renew settle retry delay release wait_for_children stalled advance"
    work += " report recover peek"
    others = "add flow cancel progress data log pause resume counts measure state range"
    others += " inspect summaries active overview failures"
    admin = "promote reprocess requeue change_delay change_priority remove remove_children"
    admin += " detach_child drain clean obliterate schedule unschedule"
    assert set(SCRIPTS) == {*work.split(), *others.split(), *admin.split()}
    for script in SCRIPTS.values():
        assert script.keys[0] == "meta", "everything else is built from its prefix"
        assert script.args[:2] == ("now_ms", "extras"), script.name
        assert script.clauses


def test_script_results_are_in_the_contract() -> None:
    answers = {word for script in SCRIPTS.values() for word in script.returns}
    known = {str(word) for word in Refusal}
    own = {"ok", "job", "limited", "blocked", "empty", "lost", "ids", "length", "left", "numbers"}
    own |= {"state", "jobs", "added", "duplicate", "deduplicated", "late", "no_children"}
    own |= {"answers", "due", "written", "removed", "moved", "done", "more", "page", "keys"}
    own |= {"failed", "broken"}
    own |= set(_CANCEL_OUTCOMES)
    assert answers - known - own == set()
    assert known - answers == set()


@pytest.mark.parametrize(
    "verb", ["add", "flow", "schedule", "promote", "reprocess", "remove", "obliterate"]
)
def test_each_refusal_of_a_verb_with_a_route_has_a_problem(verb: str) -> None:
    refusals = [Refusal(word) for word in SCRIPTS[verb].returns if word in tuple(Refusal)]
    assert refusals
    assert {refused(refusal).kind.status for refusal in refusals} <= {404, 409}


def test_keys_of_the_scripts_are_in_the_contract() -> None:
    keys = Keys("q")
    spelled = "\n".join(code(file) for file in LUA.rglob("*.lua"))
    for key in (keys.wait, keys.active, keys.prioritized, keys.delayed, keys.marker, keys.events):
        assert f"'{key.removeprefix(keys.base)}'" in spelled
    for part in (keys.limiter, keys.stalled_check, keys.meta):
        assert f"'{part.removeprefix(keys.base)}'" in spelled
    assert "'jobwire:settled:'" in spelled
    assert f"'PX', {contract.SETTLED_TTL_MS})" in spelled


def test_verbs_that_end_work_run_on_a_full_server() -> None:
    """Scripts that need memory are refused there; scripts that end jobs free memory."""
    refused = {
        name
        for name, script in SCRIPTS.items()
        if not script.source.startswith("#!lua flags=allow-oom\n")
    }
    reads = {"counts", "measure", "state", "range", "peek", "recover", "inspect", "summaries"}
    reads |= {"active", "overview", "failures"}
    takes_memory = {"add", "flow", "schedule", "progress", "data", "log", "report"}
    moves = {"promote", "reprocess", "requeue", "change_delay", "change_priority", "detach_child"}
    assert refused == reads | takes_memory | moves
