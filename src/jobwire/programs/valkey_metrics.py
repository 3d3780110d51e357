"""Metrics of the Valkey server itself, read for each scrape: what a killed server would lose now.

While an fsync runs, a server with `appendfsync everysec` holds answered writes in memory
(docs/durability.md). One reading says little; the alarm uses the average of many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily, Metric

from jobwire.job.errors import BackendUnavailable
from jobwire.valkey import ServerError, ValkeyError

if TYPE_CHECKING:
    from jobwire.valkey import Connection


async def valkey_metrics(connection: Connection) -> Sequence[Metric]:
    """None if the server has no append-only file or refuses INFO, as hosted ones may."""
    try:
        text = str(await connection.call("INFO", "persistence"))
    except ServerError:
        return ()
    except ValkeyError as error:
        raise BackendUnavailable("the Valkey server does not answer", detail=str(error)) from error
    info = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    if info.get("aof_enabled") != "1":
        return ()
    return (
        GaugeMetricFamily(
            "jobwire_valkey_fsync_running",
            "1 while an fsync of the append-only file runs",
            value=int(info.get("aof_pending_bio_fsync", 0)),
        ),
        GaugeMetricFamily(
            "jobwire_valkey_unwritten_bytes",
            "Bytes of answered writes that a killed server would lose now",
            value=int(info.get("aof_buffer_length", 0)),
        ),
    )
