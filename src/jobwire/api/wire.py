"""What a job is on its server, in one form for the jobs of every wire."""

from typing import Annotated

from msgspec import Meta, Struct


class WireField(Struct, frozen=True, omit_defaults=True):
    """A field of a hash, or of an entry of a stream."""

    name: str
    value: str
    cut: Annotated[int, Meta(description="how many further characters the value has")] = 0
    extra: Annotated[bool, Meta(description="not in the published contract: ours")] = False


class WireEntry(Struct, frozen=True):
    """An entry of a stream."""

    id: str
    fields: list[WireField]


class WirePending(Struct, frozen=True):
    """A delivery of an entry that was not acknowledged yet."""

    consumer: str
    idle_ms: Annotated[int, Meta(description="since the lease was last renewed")]
    deliveries: int


class WireKey(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key of the job. Which of `fields`, `entries`, `value` it has depends on its type."""

    key: str
    type: Annotated[str, Meta(description="as TYPE names it: hash, stream, string, zset")]
    ttl_ms: Annotated[int | None, Meta(description="null: the key has no lifetime")]
    size: Annotated[int | None, Meta(description="fields, entries or members")] = None
    note: str = ""
    fields: list[WireField] | None = None
    entries: Annotated[list[WireEntry] | None, Meta(description="the last ones")] = None
    value: str | None = None
    pending: WirePending | None = None
    command: Annotated[list[str], Meta(description="arguments of valkey-cli that read it")]
    path: Annotated[str, Meta(description="the same over HTTP, if it can be read so")] = ""


class WireJob(Struct, frozen=True):
    """A job as it is on the server."""

    job_id: str
    wire: str
    now_ts: int
    keys: list[WireKey]
