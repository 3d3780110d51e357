"""The backup of docs/operations.md, made from a running server, restores its jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from redis import Redis

from jobwire.local import LocalValkey
from tests.docs.pages import blocks
from tests.support import clause
from tests.support.program import ROOT

_PAGE: Final = ROOT / "docs" / "operations.md"


def _client(server: LocalValkey) -> Redis:
    return Redis.from_url(server.admin_url.replace("valkey:", "redis:"), decode_responses=True)


@clause("O-12")
def test_a_restored_server_has_the_jobs_of_the_backup(tmp_path: Path) -> None:
    (backup,) = [block for block in blocks(_PAGE) if "valkey-backup" in block.text]
    with LocalValkey(tmp_path / "old", admin=True) as server, _client(server) as client:
        client.hset("job:1", mapping={"status": "queued"})
        entry = client.xadd("jobs:stream", {"job_id": "1"})
        env = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "JOBWIRE_VALKEY_URL": server.admin_url,
            "VALKEY_DIR": str(client.config_get("dir")["dir"]),
        }
        for line in backup.commands():
            subprocess.run(line, shell=True, check=True, cwd=tmp_path, env=env, timeout=60)
        client.hset("job:1", mapping={"status": "done"})  # not in the backup
        assert client.config_get("auto-aof-rewrite-percentage") == {
            "auto-aof-rewrite-percentage": "100"
        }
        place = Path(env["VALKEY_DIR"]).relative_to(tmp_path / "old")
    restored = tmp_path / "new" / place
    restored.mkdir(parents=True)
    unpack = ["tar", "--extract", "--file", "valkey-backup.tar.gz", "--directory", str(restored)]
    subprocess.run(unpack, check=True, cwd=tmp_path, timeout=60)
    with LocalValkey(tmp_path / "new", admin=True) as server, _client(server) as client:
        assert client.hgetall("job:1") == {"status": "queued"}
        assert client.xrange("jobs:stream") == [(entry, {"job_id": "1"})]
