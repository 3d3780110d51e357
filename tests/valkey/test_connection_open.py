"""Connection.open: it connects, or raises the documented error in one line."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from jobwire.local import LocalValkey
from jobwire.local.ports import free_port
from jobwire.valkey import AuthFailed, Config, ConfigError, Connection, Unavailable, Unsupported
from jobwire.valkey.errors import ValkeyError
from tests.support import Fresh, Proxy, clause
from tests.support.tls import own_certificate
from tests.valkey.test_scripts import COUNT

pytestmark = clause("T-2", "T-4")


@asynccontextmanager
async def peer(answer: bytes | None) -> AsyncGenerator[str]:
    """A server that answers every command with the same bytes, or not at all."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            if answer is not None:
                writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def open_error(config: Config) -> ValkeyError:
    with pytest.raises(ValkeyError) as caught:
        await Connection.open(config)
    assert "\n" not in str(caught.value)
    assert config.address in str(caught.value)
    return caught.value


async def test_t02_connection_refused() -> None:
    error = await open_error(Config(address=f"127.0.0.1:{free_port()}"))
    assert type(error) is Unavailable
    assert "cannot connect" in str(error)


async def test_t02_an_unknown_host() -> None:
    assert type(await open_error(Config(address="unknown.invalid:6379"))) is Unavailable


async def test_t02_a_peer_that_does_not_answer() -> None:
    async with peer(None) as address:
        error = await open_error(Config(address=address, dial_timeout_s=0.2))
    assert type(error) is Unavailable
    assert "no answer" in str(error)


async def test_t02_not_a_valkey() -> None:
    async with peer(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n") as address:
        assert "not as a Valkey" in str(error := await open_error(Config(address=address)))
    assert isinstance(error, Unsupported)


@pytest.mark.parametrize(
    "answer",
    [
        b"-ERR unknown command 'HELLO'\r\n",
        b"-NOPROTO unsupported protocol version\r\n",
        b"%3\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n6.2.14\r\n$2\r\nid\r\n:7\r\n",
    ],
)
async def test_t02_an_unsupported_version(answer: bytes) -> None:
    async with peer(answer) as address:
        error = await open_error(Config(address=address))
    assert isinstance(error, Unsupported)
    assert "7 or newer" in str(error)


async def test_t02_wrong_password_and_no_password(valkey: LocalValkey) -> None:
    right = Config.from_url(valkey.url)
    wrong = await open_error(Config(address=right.address, username="jobwire", password="not-it"))
    assert isinstance(wrong, AuthFailed)
    assert "not-it" not in str(wrong)
    assert "'jobwire'" in str(wrong)
    none = await open_error(Config(address=right.address))
    assert isinstance(none, AuthFailed)
    assert "none is set" in str(none)


async def test_t02_an_invalid_client_name() -> None:
    with pytest.raises(ConfigError, match="name"):
        await Connection.open("valkey://127.0.0.1", name="two words")


async def test_t02_open_waits_for_a_loading_server() -> None:
    answers = iter((b"-LOADING Valkey is loading the dataset in memory\r\n",) * 3)
    hello = (
        b"%3\r\n$6\r\nserver\r\n$6\r\nvalkey\r\n$7\r\nversion\r\n$5\r\n9.1.2\r\n$2\r\nid\r\n:7\r\n"
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(hello if b"HELLO" in data else next(answers, b"+PONG\r\n"))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with Connection.open(f"valkey://127.0.0.1:{port}") as connection:
            assert await connection.ping() == "PONG"
    assert next(answers, None) is None, "three LOADING replies before"


async def test_t02_databases_are_separate(valkey: LocalValkey, fresh: Fresh) -> None:
    key = fresh("key")
    one = valkey.url.removesuffix("/0") + "/1"
    async with Connection.open(valkey.url) as zeroth, Connection.open(one) as first:
        await first.call("SET", key, "x", "EX", 60)
        assert await zeroth.call("GET", key) is None
        await first.delete(key)


async def test_t02_tls(valkey: LocalValkey) -> None:
    trust = ssl.create_default_context(cadata=own_certificate().pem.decode())
    with Proxy(valkey.port, tls=True) as proxy:
        config = Config.from_url(proxy.url(valkey.url), tls_context=trust)
        assert config.tls
        async with Connection.open(config, scripts=[COUNT]) as connection:
            assert await connection.ping() == "PONG"
            big = "x" * 300_000
            assert await connection.call("ECHO", big) == big
            async with connection.socket() as own:
                assert await own.call("PING") == "PONG"


async def test_t02_tls_with_an_untrusted_certificate(valkey: LocalValkey) -> None:
    with Proxy(valkey.port, tls=True) as proxy:
        error = await open_error(Config.from_url(proxy.url(valkey.url)))
    assert type(error) is Unavailable
    assert "not trusted" in str(error)


async def test_t02_a_unix_socket(tmp_path: Path, socket_folder: Path) -> None:
    address = str(socket_folder / "v.sock")
    with LocalValkey(tmp_path, extra=[f"unixsocket {address}"]) as server:
        config = Config(address=address, username="jobwire", password=server.password)
        async with Connection.open(config) as connection:
            assert await connection.ping() == "PONG"


async def test_t02_works_with_redis_7(redis7: LocalValkey, fresh: Fresh) -> None:
    key, stream = fresh("counter"), fresh("stream")
    async with Connection.open(redis7.url, scripts=[COUNT]) as connection:
        assert await connection.run(COUNT, [key], [3, "x"]) == 3
        await connection.xgroup_create_mkstream(stream, "group")
        entry = await connection.xadd(stream, {"a": 1})
        got = await connection.xreadgroup("group", "one", stream, block_s=1)
        assert [message.id for message in got] == [entry]
        async with connection.subscribe("channel") as messages:
            await connection.call("PUBLISH", "channel", "hello")
            assert await anext(messages) == ("channel", "hello")
        await connection.delete(key, stream)


async def test_t02_connect_timeout_waits_for_a_server_that_starts_late(
    own_valkey: LocalValkey, fresh: Fresh
) -> None:
    url = own_valkey.url
    own_valkey.stop()
    opening = asyncio.create_task(_opened(url))
    await asyncio.sleep(0)
    own_valkey.start()
    connection = await opening
    assert await connection.ping() == "PONG"
    await connection.close()


async def _opened(url: str) -> Connection:
    return await Connection.open(url, connect_timeout_s=30)


async def test_t02_scripts_are_loaded_after_a_lost_connection(
    valkey: LocalValkey, proxy: Proxy, fresh: Fresh
) -> None:
    """A program that loses its server during its start still starts."""
    async with Connection.open(proxy.url(valkey.url)) as connection:
        with proxy.hold("SCRIPT") as hold:
            loading = asyncio.create_task(connection.load_scripts([COUNT]))
            await hold.until_reached()
            proxy.cut()
            await loading
        assert await connection.run(COUNT, [fresh("counter")], [1, "x"]) == 1
