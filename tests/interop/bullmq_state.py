"""Every key of a database as plain values, made comparable between programs.

Random and insignificant parts are removed: stream ids, exact remaining lifetimes, the order of JSON
members. Declared extras of ours can be removed too; nothing else is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from tests.support import Plain

State = dict[str, Any]

_DUMP: Final = """
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  local value
  if kind == 'string' then value = redis.call('GET', key)
  elseif kind == 'list' then value = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'set' then value = redis.call('SMEMBERS', key)
  elseif kind == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'hash' then value = redis.call('HGETALL', key)
  else value = redis.call('XRANGE', key, '-', '+') end
  found[#found + 1] = { key, kind, redis.call('PTTL', key), value }
end
return found
"""

_JSON_FIELDS: Final = frozenset(
    {"opts", "data", "parent", "progress", "returnvalue", "stacktrace", "pd"}
)
_JSON_EVENT_FIELDS: Final = {"progress": ("data", "progress"), "completed": ("returnvalue",)}
_TTL_STEP_MS: Final = 600_000
"""Lifetimes in the lab are multiples of ten minutes; a run takes seconds of them."""

_EXTRA_EVENT_FIELDS: Final = frozenset({"timestamp", "workerId", "progress", "message"})


def dump(plain: Plain, *, without_extras: bool = False) -> State:
    """All keys of the client's database."""
    rows = cast("list[tuple[str, str, int, Any]]", plain.eval(_DUMP, 0))
    state: State = {}
    for key, kind, ttl_ms, raw in rows:
        if ":jobwire:" in key:
            # Keys of our own, with or without extras; no other program has or needs them.
            assert 0 < ttl_ms <= 60_000, f"{key} must expire"
            continue
        value = _value(key, kind, raw, without_extras=without_extras)
        state[key] = value if ttl_ms == -1 else {"expires": _rounded(ttl_ms), "value": value}
    return state


def differences(ours: State, theirs: State) -> list[str]:
    """One line for each key that is not the same on both sides."""
    return [
        f"{key}\n    ours:   {ours.get(key, '(none)')}\n    theirs: {theirs.get(key, '(none)')}"
        for key in sorted({*ours, *theirs})
        if ours.get(key) != theirs.get(key)
    ]


def _rounded(ttl_ms: int) -> int:
    return -(-ttl_ms // _TTL_STEP_MS)


def _value(key: str, kind: str, raw: Any, *, without_extras: bool) -> object:
    if kind == "hash" and key.endswith(":processed"):
        return {child: _parsed(text) for child, text in _pairs(raw)}
    if kind == "hash":
        return _hash(dict(_pairs(raw)), without_extras=without_extras)
    if kind == "set":
        return sorted(raw)
    if kind == "zset":
        # Others write the time of the marker as a fraction; every reader cuts it off.
        return [(member, int(float(score))) for member, score in _pairs(raw)]
    if kind == "stream":
        events = [list(_pairs(fields)) for _, fields in raw]
        return [
            _event(event, without_extras=without_extras)
            for event in events
            if not (without_extras and event[0] == ("event", "retry"))
        ]
    return raw


def _pairs(flat: list[str]) -> Iterable[tuple[str, str]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _hash(fields: dict[str, str], *, without_extras: bool) -> Mapping[str, object]:
    if without_extras:
        fields.pop("workerId", None)
        if fields.get("progress") == "0":
            del fields["progress"]
    found: dict[str, object] = {
        name: _parsed(text) if name in _JSON_FIELDS else text for name, text in fields.items()
    }
    opts = found.get("opts")
    if isinstance(opts, dict) and not cast("dict[str, object]", opts).get("delay", 1):
        del opts["delay"]
    return found


def _event(event: list[tuple[str, str]], *, without_extras: bool) -> list[tuple[str, object]]:
    name = event[0][1]
    parsed = _JSON_EVENT_FIELDS.get(name, ())
    return [
        (field, _parsed(text) if field in parsed else text)
        for field, text in event
        if not (without_extras and field in _EXTRA_EVENT_FIELDS)
    ]


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return f"not JSON: {text}"
