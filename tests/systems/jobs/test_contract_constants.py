"""Literals of the wire are defined in one place: contract.py, and the scripts that must agree with
it.

Literals are found by parsing the source, so docstrings and comments may name them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pytest

import jobwire
from jobwire.job.messages import RAW
from jobwire.systems.jobs import contract
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.scripts import SCRIPTS

SOURCE = Path(jobwire.__file__).parent
PACKAGE = SOURCE / "systems" / "jobs"
LUA = PACKAGE / "lua"

KEY = re.compile(r"^\{?(jobs:|job:|idempotency:)")
"""How every key of the wire begins."""

WORDS = {
    str(word)
    for enum in vars(contract).values()
    if isinstance(enum, type) and issubclass(enum, StrEnum) and enum is not StrEnum
    for word in enum
} | {contract.GROUP, contract.HELLO, contract.GAP, RAW}

# Words that only this wire has; the others ("task", "done") are common words.
OWN = {word for word in WORDS if "_ts" in word or "." in word} | {"retry_of", "idempotency_key"}


def literals(file: Path) -> Iterator[tuple[int, str]]:
    """Every piece of text in the code of a file; without docstrings and other bare strings."""
    tree = ast.parse(file.read_text())
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        # Quoted names of attributes.
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__":
            prose |= {id(name) for name in ast.walk(node.value)}
        # The facts of a log line have names of their own.
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("_log."):
            facts = (each for each in node.args if isinstance(each, ast.Dict))
            prose |= {id(name) for each in facts for name in each.keys}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.lineno, node.value


def faults(file: Path, *, package: Path = PACKAGE) -> list[str]:
    """Words of the wire that are spelled out in a file where they must not be."""
    inside = file.is_relative_to(package)
    forbidden = WORDS if inside else OWN
    return [
        f"{file.name}:{line} spells {text!r}; take it from contract.py"
        for line, text in literals(file)
        if text in forbidden or KEY.match(text)
    ]


def allowed(file: Path) -> bool:
    # HTTP names the members of JSON bodies, which are the fields' names.
    if file.is_relative_to(PACKAGE / "http") or file.is_relative_to(SOURCE / "api"):
        return True
    # JSON Schema has words of its own, of which `type` is one of the wire's.
    if file in (PACKAGE / "contract.py", PACKAGE / "schema.py"):
        return True
    # Values of settings are words of their own: `shard_by: tenant`.
    if file == PACKAGE / "settings.py":
        return True
    # Other wires and the toolkit's dead letters have words of their own, some of them the same.
    others = file.is_relative_to(SOURCE / "systems") and not file.is_relative_to(PACKAGE)
    return others or any(file.is_relative_to(SOURCE / package) for package in ("page", "valkey"))


def test_wire_constants_are_spelled_in_the_contract_only() -> None:
    files = [file for file in SOURCE.rglob("*.py") if not allowed(file)]
    assert len(files) > 20
    assert [fault for file in files for fault in faults(file)] == []


@pytest.mark.parametrize(
    "planted",
    [
        'key = "jobs:stream"',
        'key = f"job:{job_id}"',
        'call("HSET", "idempotency:x")',
        'fields["updated_ts"]',
        'step = "gateway.enqueue"',
    ],
)
def test_a_planted_literal_is_found_anywhere(tmp_path: Path, planted: str) -> None:
    file = tmp_path / "planted.py"
    file.write_text(planted)
    assert len(faults(file)) == 1


@pytest.mark.parametrize("planted", ['status = "running"', 'field = "payload"', 'g = "workers"'])
def test_a_planted_literal_is_found_in_the_wires_own_package(tmp_path: Path, planted: str) -> None:
    file = tmp_path / "planted.py"
    file.write_text(planted)
    assert len(faults(file, package=tmp_path)) == 1
    assert faults(file) == [], "elsewhere it is plain English"


def test_docstrings_may_name_constants(tmp_path: Path) -> None:
    file = tmp_path / "prose.py"
    file.write_text('"""Reads jobs:stream and updated_ts."""\n\n# job:{id} is a hash\n')
    assert faults(file) == []


# ── the scripts ──────────────────────────────────────────────────────────────────────────────────

QUOTED = re.compile(r"'((?:[^'\\\n]|\\.)*)'")
COMMANDS = {
    *("EXISTS", "HGET", "HMGET", "HLEN", "HSET", "HSETNX", "HDEL", "HEXISTS", "HINCRBY", "EXPIRE"),
    *(
        "PEXPIRE",
        "PEXPIREAT",
        "PTTL",
        "GET",
        "SET",
        "DEL",
        "TIME",
        "PUBLISH",
        "XADD",
        "XLEN",
        "XRANGE",
        "XREVRANGE",
        "XDEL",
    ),
    *("XTRIM", "XACK", "XCLAIM", "XPENDING", "XREADGROUP", "XGROUP", "XINFO", "ZADD", "ZCARD"),
    *("ZREM", "ZRANGE", "ZRANK", "ZRANGEBYSCORE", "ZSCAN", "ZSCORE", "ZCOUNT", "HGETALL"),
    *("HKEYS", "PEXPIRETIME"),
    *("ZMSCORE", "ZREMRANGEBYSCORE", "HSCAN", "HSTRLEN"),
    *("SADD", "SREM", "SISMEMBER", "SMEMBERS", "SRANDMEMBER"),
}
OPTIONS = {
    *(
        "*",
        "-",
        "+",
        ">",
        "0",
        "EX",
        "NX",
        "PX",
        "PXAT",
        "COUNT",
        "STREAMS",
        "GROUP",
        "GROUPS",
        "CREATE",
    ),
    *(
        "MKSTREAM",
        "CONSUMERS",
        "DELCONSUMER",
        "CREATECONSUMER",
        "JUSTID",
        "IDLE",
        "MAXLEN",
        "LIMIT",
        "-inf",
    ),
    *("+inf", "REV", "WITHSCORES"),
    *(
        "BUSYGROUP",
        "NOGROUP",
        "WRONGTYPE",
        "last-delivered-id",
        "name",
        "idle",
        "number",
        "string",
        "table",
    ),
}
DUTIES = {
    *(
        "outage",
        "reclaim",
        "janitor",
        "index_foreign",
        "extend_ttl",
        "reconcile",
        "clock",
        "forget_tasks",
        "guarded",
    ),
    "recount:",
    "bytes:",
}
DROPPED = {
    "malformed",
    "wrong_type",
    "gone",
    "ended",
    "duplicate",
    "canceled",
    "unknown",
    "refused",
    "returned",
}
SCOPES = {"only", "first", "known", "suspended", "delayed", "end", "restart"}
"""Of scripts that go through several queues, or through a queue and the delayed jobs; and of a job
that begins anew."""


def code(file: Path) -> str:
    return re.sub(r"--.*", "", file.read_text())


def test_the_scripts_build_keys_in_one_place_and_as_the_contract_does() -> None:
    for file in LUA.rglob("*.lua"):
        if file.name == "keys.lua":
            continue
        spelled = [text for text in QUOTED.findall(code(file)) if KEY.match(text)]
        assert spelled == [], f"{file.name}: build keys in include/keys.lua"

    keys = StreamsKeys()
    literals = set(QUOTED.findall(code(LUA / "include" / "keys.lua")))
    wanted = {
        keys.queue,
        keys.delayed,
        keys.suspended,
        keys.open,
        keys.tenants,
        keys.control,
        keys.index(),
    }
    wanted |= {keys.tenant_bytes("x")[:-1]}
    wanted |= {keys.clock, keys.tasks, keys.queues, keys.paused, keys.crons, keys.paused_crons}
    wanted.add(keys.shards)
    wanted |= {keys.index("x")[:-1], keys.job(""), keys.events("")[len(keys.job("")) :]}
    wanted |= {keys.steps("")[len(keys.job("")) :], keys.awaits("")[len(keys.job("")) :]}
    wanted |= {*contract.IDEMPOTENCY_SPACES, keys.worker(""), keys.guard(""), keys.cron("")}
    wanted |= {keys.cron_job(""), keys.stub("")[len(keys.job("")) :]}
    wanted |= {keys.stats(0)[:-1] + "%.0f", keys.failures(0)[:-1] + "%.0f"}
    own = {contract.DEFAULT_QUEUE, contract.QUEUE_SEPARATOR, ":"}
    assert literals - {"", "%.0f"} == wanted | own


def test_every_script_literal_belongs_to_the_contract_or_the_server() -> None:
    answers = {word for script in SCRIPTS.values() for word in script.returns}
    known = WORDS | COMMANDS | OPTIONS | answers | DUTIES | DROPPED | {contract.TASK_FIELD, ""}
    known |= {contract.LATENCY, contract.DURATION, contract.DEFAULT_QUEUE, *SCOPES}
    known |= {contract.CLAIMED}
    known.add(contract.BYTES_TOTAL)
    for file in LUA.rglob("*.lua"):
        if file.name == "keys.lua":
            continue
        words = {text for text in QUOTED.findall(code(file)) if re.fullmatch(r"[\w.:*-]+", text)}
        assert words - known - {":", "1", "0-0"} == set(), file.name


def test_lifetimes_and_limits_in_the_scripts_equal_the_contract() -> None:
    life = code(LUA / "include" / "state.lua")
    assert f"<= {contract.MAX_TTL_S}" in life
    assert f"'EXPIRE', key, {contract.STATS_TTL_S})" in life
    failures = code(LUA / "include" / "failures.lua")
    assert f"'EXPIRE', key, {contract.FAILURES_TTL_S})" in failures
    assert f"<= {contract.MAX_PAYLOAD_BYTES} and decoded(payload) then" in failures
    assert f"max_depth = {contract.MAX_CHILD_DEPTH}\n" in failures
    assert f"tenant_ttl_s = 10000, 200, {contract.MAX_TTL_S}" in code(
        LUA / "include" / "tenants.lua"
    )


def test_scripts_that_must_run_on_a_full_server_are_flagged() -> None:
    refused = {
        name
        for name, script in SCRIPTS.items()
        if not script.source.startswith("#!lua flags=allow-oom\n")
    }
    children = {"submit_child", "signal", "copy_record"}
    plain = {"submit", "claim_key", "cron", "report"}
    assert refused == plain | children, "J-9: all but these"
    assert all(SCRIPTS[name].source.startswith("#!lua\n") for name in refused)


def test_each_verb_has_its_script() -> None:
    verbs = "submit take renew_lease report record settle retry release cancel reclaim promote"
    maintenance = "janitor prune index_foreign extend_ttl reconcile clock forget_tasks"
    ours = "recover_orphans heartbeat join deregister enroll cron list worker_info"
    ours += " pause resume purge expire_leases overview resume_cron list_steps"
    ours += " claim_key report_shards"
    ours += " suspend signal submit_child copy_record"
    assert set(SCRIPTS) == {*verbs.split(), *maintenance.split(), *ours.split()}
    for script in SCRIPTS.values():
        assert script.keys == ("queue",), "everything else is built from its prefix"
        assert script.clauses
