"""Lua files: headers are parsed; scripts are loaded again after NOSCRIPT."""

import asyncio
import re
from itertools import takewhile
from pathlib import Path

import pytest
from redis import Redis

import jobwire
from jobwire.local import LocalValkey
from jobwire.valkey import Connection, ServerError, load_scripts
from jobwire.valkey.scripts import HeaderError, read_script
from tests.support import Fresh, Proxy, clause
from tests.support.clauses import written_clauses

pytestmark = clause("T-3")

COUNT = load_scripts("tests.valkey.lua")["count"]


def test_t03_the_header_is_parsed() -> None:
    assert COUNT.purpose == "raise a counter that lives for a minute."
    assert COUNT.keys == ("counter",)
    assert COUNT.args == ("step", "note")
    assert COUNT.returns == ("number", "refused")
    assert COUNT.clauses == ("T-3",)


def test_t03_flags_stay_on_the_first_line_and_includes_precede_the_code() -> None:
    lines = COUNT.source.splitlines()
    assert lines[0] == "#!lua flags=allow-oom"
    assert COUNT.source.index("function is_number") < COUNT.source.index("local counter")


@pytest.mark.parametrize(
    "text",
    [
        "return 1",
        "-- other: a name that is not the file's\n-- RETURNS\n--   one  x\n",
        "-- bad: x\n",
    ],
)
def test_t03_an_incomplete_header_is_rejected(text: str, tmp_path: Path) -> None:
    (tmp_path / "bad.lua").write_text(text)
    with pytest.raises(HeaderError, match=r"bad\.lua"):
        read_script(tmp_path / "bad.lua", tmp_path)


def shipped() -> list[str]:
    """The packages of jobwire that contain scripts."""
    root = Path(jobwire.__file__).parent
    folders = {file.parent for file in root.rglob("*.lua") if file.parent.name == "lua"}
    return sorted(".".join(("jobwire", *folder.relative_to(root).parts)) for folder in folders)


@pytest.mark.parametrize("package", [*shipped(), "tests.valkey.lua"])
def test_t03_headers_match_their_scripts(package: str) -> None:
    """KEYS and ARGV are bound to the header's names, each once; the clauses exist."""
    clauses = written_clauses()
    for script in load_scripts(package).values():
        assert set(script.clauses) <= set(clauses), script.name
        for table, names in (("KEYS", script.keys), ("ARGV", script.args)):
            # Behind it prose describes any number of further values.
            fixed = [*takewhile(lambda name: name != "...", names)]
            used = {int(n) for n in re.findall(rf"\b{table}\[(\d+)\]", script.source)}
            assert max(used, default=0) <= len(fixed) or "..." in names, (script.name, table)
            assert len(set(fixed)) == len(fixed), (script.name, table)
            for place, name in _bound(script.source, table).items():
                if place <= len(fixed):
                    assert _is_part(name, fixed[place - 1]), (script.name, table, place)


def _bound(source: str, table: str) -> dict[int, str]:
    """Position → name, from `local a, b = KEYS[1], tonumber(KEYS[2])`."""
    value = re.compile(rf"(tonumber\()?{table}\[(\d+)\](?(1)\)|(?: == '1')?)")
    found: dict[int, str] = {}
    for names, values in re.findall(
        r"^local ([\w, ]+)\s*=\s*(.*(?:\n  .*)*)$", source, re.MULTILINE
    ):
        for name, expression in zip(names.split(","), values.split(","), strict=False):
            if match := value.fullmatch(expression.strip()):
                found[int(match[2])] = name.strip()
    return found


def _is_part(name: str, full_name: str) -> bool:
    """Whether it is the name, or its beginning or end: `now` of `now_ms`, `id` of `job_id`."""
    return f"_{full_name}_".startswith(f"_{name}_") or f"_{full_name}_".endswith(f"_{name}_")


async def test_t03_scripts_run(connection: Connection, fresh: Fresh) -> None:
    key = fresh("counter")
    assert await connection.run(COUNT, [key], [2, "x"]) == 2
    assert await connection.run(COUNT, [key], ["no", "x"]) == "refused"


async def test_t03_noscript_loads_once_for_many_callers(
    valkey: LocalValkey, plain: Redis, fresh: Fresh
) -> None:
    with Proxy(valkey.port) as proxy:
        async with Connection.open(proxy.url(valkey.url), scripts=[COUNT]) as connection:
            plain.script_flush()
            proxy.forget_seen()
            key = fresh("counter")
            replies = await asyncio.gather(
                *(connection.run(COUNT, [key], [1, "x"]) for _ in range(100))
            )
        assert replies == list(range(1, 101)), "in order, each once"
        assert proxy.names.count("SCRIPT") == 1


async def test_t03_no_command_overtakes_a_script_during_reload(
    connection: Connection, plain: Redis, fresh: Fresh
) -> None:
    key = fresh("counter")
    await connection.run(COUNT, [key], [1, "x"])
    plain.script_flush()
    script = connection.run(COUNT, [key], [1, "x"])
    await asyncio.sleep(0)  # the script was written; the next command leaves in a later write
    read = connection.call("GET", key)
    assert (await script, await read) in ((2, "1"), (2, "2"))
    plain.script_flush()
    calls = [connection.run(COUNT, [key], [1, "x"]), connection.run(COUNT, [key], [1, "x"])]
    assert [await call for call in calls] == [3, 4]


async def test_t03_a_script_error_fails_one_call_only(
    connection: Connection, plain: Redis, fresh: Fresh
) -> None:
    wrong, right = fresh("list"), fresh("counter")
    plain.rpush(wrong, "x")
    plain.expire(wrong, 60)
    bad = connection.run(COUNT, [wrong], [1, "x"])
    good = connection.run(COUNT, [right], [1, "x"])
    with pytest.raises(ServerError) as caught:
        await bad
    assert caught.value.code == "WRONGTYPE"
    assert await good == 1
