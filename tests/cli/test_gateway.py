"""`jobwire gateway`: only the HTTP gateway."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from jobwire.local import LocalS3, LocalValkey, free_port
from jobwire.objects import BucketConfig
from tests.cli.runner import clean_env, jobwire
from tests.support import Program, clause, wait_until_sync
from tests.support.s3 import rclone


@clause("O-2")
def test_the_gateway_serves_and_stops(valkey: LocalValkey, tmp_path: Path) -> None:
    port = str(free_port())
    env = clean_env(JOBWIRE_VALKEY_URL=valkey.url)
    with Program("-m", "jobwire", "gateway", "--port", port, env=env, cwd=tmp_path) as program:
        program.wait_for_line(f"gateway on http://127.0.0.1:{port}")
        parts = httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False, verify=False).json()[
            "parts"
        ]
        assert [part["name"] for part in parts] == ["gateway", "valkey"]
        program.terminate()
        assert program.wait() == 0


@clause("O-2", "O-7")
def test_the_gateway_survives_an_outage_of_valkey(own_valkey: LocalValkey, tmp_path: Path) -> None:
    port = str(free_port())
    env = clean_env(JOBWIRE_VALKEY_URL=own_valkey.url)
    url = f"http://127.0.0.1:{port}/readyz"
    with Program("-m", "jobwire", "gateway", "--port", port, env=env, cwd=tmp_path) as program:
        program.wait_for_line("gateway on")
        own_valkey.kill()

        def down() -> bool:
            response = httpx.get(url, timeout=30, trust_env=False, verify=False)
            return response.status_code == 503 and "valkey is down" in response.json()["detail"]

        wait_until_sync(down, "/readyz to report valkey as down")
        own_valkey.start()
        wait_until_sync(
            lambda: httpx.get(url, timeout=30, trust_env=False, verify=False).status_code == 200,
            "/readyz to be 200 again",
        )
        program.terminate()
        assert program.wait() == 0


@clause("O-2")
def test_a_missing_server_is_waited_for_then_one_line_and_exit_3(tmp_path: Path) -> None:
    source = (
        "import sys; from jobwire.systems import backends; from jobwire.cli.main import main\n"
        "backends.START_TIMEOUT_S = 4\n"  # also on a busy machine longer than one attempt
        "sys.exit(main(['gateway', '--port', '0', '--valkey', sys.argv[1]]))"
    )
    address = f"127.0.0.1:{free_port()}"
    env = clean_env(JOBWIRE_LOGGING_LEVEL="info")
    with Program("-c", source, f"valkey://{address}", env=env, cwd=tmp_path) as program:
        assert program.wait() == 3
        assert "will retry" in program.lines[0]
        assert program.lines[-1].startswith(f"jobwire: Valkey: cannot connect to {address}: ")
        assert program.lines[-1].endswith("To start everything here: jobwire up")


@clause("O-2")
@pytest.mark.parametrize("wrong", ["valkey://h:x", "http://h:1", "valkey://"])
def test_a_wrong_url_is_one_line_and_exit_2(tmp_path: Path, wrong: str) -> None:
    done = jobwire("gateway", "--valkey", wrong, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("jobwire: --valkey valkey.url: ")
    assert len(done.stderr.splitlines()) == 1


@clause("O-6")
def test_a_public_address_without_keys_is_refused(tmp_path: Path) -> None:
    done = jobwire("gateway", "--host", "0.0.0.0", "--valkey", "valkey://h:1", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("jobwire: --host gateway.host: 0.0.0.0 can be reached by others")


@clause("P-11")
def test_p11_a_store_without_conditional_writes_is_one_line_and_exit_2(
    valkey: LocalValkey, tmp_path: Path
) -> None:
    with rclone(tmp_path) as store:
        env = {"JOBWIRE_VALKEY_URL": valkey.url, **_objects(store)}
        done = jobwire("gateway", "--port", "0", cwd=tmp_path, env=env)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"jobwire: the bucket {store.bucket} at {store.endpoint} cannot be used")
    assert "'create only if absent': it accepted two creates" in line


@clause("O-2")
def test_wrong_bucket_keys_are_one_line_and_exit_3(
    valkey: LocalValkey, seaweedfs: BucketConfig, tmp_path: Path
) -> None:
    env = {"JOBWIRE_VALKEY_URL": valkey.url, **_objects(replace(seaweedfs, secret_key="wrong"))}
    done = jobwire("gateway", "--port", "0", cwd=tmp_path, env=env)
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert "refused the access key" in line


@clause("O-2", "O-7")
def test_readyz_reports_a_bucket_outage_and_recovery(valkey: LocalValkey, tmp_path: Path) -> None:
    port = str(free_port())
    server = LocalS3(tmp_path / "s3").start()
    try:
        env = clean_env(JOBWIRE_VALKEY_URL=valkey.url, **_objects(server.config))
        url = f"http://127.0.0.1:{port}/readyz"
        with Program("-m", "jobwire", "gateway", "--port", port, env=env, cwd=tmp_path) as program:
            program.wait_for_line("gateway on")
            assert httpx.get(url, timeout=30, trust_env=False, verify=False).status_code == 200
            server.kill()

            def down() -> bool:
                response = httpx.get(url, timeout=30, trust_env=False, verify=False)
                return response.status_code == 503 and "s3 is down" in response.json()["detail"]

            wait_until_sync(down, "/readyz to report s3 as down")
            server.start()
            wait_until_sync(
                lambda: (
                    httpx.get(url, timeout=30, trust_env=False, verify=False).status_code == 200
                ),
                "/readyz to be 200 again",
            )
            program.terminate()
            assert program.wait() == 0
    finally:
        if server.alive:
            server.kill()
        server.stop()


def _objects(bucket: BucketConfig) -> dict[str, str]:
    return {
        "JOBWIRE_OBJECTS_ENDPOINT": bucket.endpoint,
        "JOBWIRE_OBJECTS_BUCKET": bucket.bucket,
        "JOBWIRE_OBJECTS_ACCESS_KEY": bucket.access_key,
        "JOBWIRE_OBJECTS_SECRET_KEY": bucket.secret_key,
    }
