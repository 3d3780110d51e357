"""Config is checked when built; an error names its field."""

from dataclasses import fields

import pytest

from jobwire.valkey import Config, ConfigError
from tests.support import clause

pytestmark = clause("T-1")


def test_t01_defaults() -> None:
    # The fields' own: for the suite, what a call leaves out is longer (`tests.support.patience`).
    default = {each.name: each.default for each in fields(Config)}
    assert [default[name] for name in ("db", "pool_size", "tls")] == [0, 10, False]
    timeouts = ("dial_timeout_s", "read_timeout_s", "write_timeout_s", "failover_timeout_s")
    assert [default[name] for name in timeouts] == [5, 3, 3, 10]


@pytest.mark.parametrize("pool_size", [0, -1])
def test_t01_no_pool_size_means_the_default(pool_size: int) -> None:
    assert Config(address="localhost", pool_size=pool_size).pool_size == 10


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("address", {"address": ""}),
        ("address", {"address": "host:0"}),
        ("address", {"address": "host:65536"}),
        ("address", {"address": "host:six"}),
        ("address", {"address": ":6379"}),
        ("address", {"sentinels": ("a", ":1"), "primary": "main"}),
        ("primary", {"sentinels": ("a",)}),
        ("failover_timeout_s", {"address": "host", "failover_timeout_s": 0.0}),
        ("db", {"address": "host", "db": -1}),
        ("dial_timeout_s", {"address": "host", "dial_timeout_s": -1.0}),
        ("read_timeout_s", {"address": "host", "read_timeout_s": 0.0}),
        ("write_timeout_s", {"address": "host", "write_timeout_s": float("nan")}),
    ],
)
def test_t01_a_wrong_value_names_its_field(
    field: str, values: dict[str, str | int | float | tuple[str, ...]]
) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(**values)  # pyright: ignore[reportArgumentType]  # wrong on purpose
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "endpoint"),
    [
        ("host:7000", ("host", 7000)),
        ("host", ("host", 6379)),
        ("[::1]:7000", ("::1", 7000)),
        ("::1", ("::1", 6379)),
        ("/run/valkey.sock", "/run/valkey.sock"),
    ],
)
def test_t01_addresses(address: str, endpoint: tuple[str, int] | str) -> None:
    assert Config(address=address).endpoint == endpoint


@pytest.mark.parametrize(
    ("url", "config"),
    [
        ("valkey://host", Config(address="host:6379")),
        ("redis://host:7000/3", Config(address="host:7000", db=3)),
        ("valkeys://host", Config(address="host:6379", tls=True)),
        ("rediss://[::1]:7000", Config(address="[::1]:7000", tls=True)),
        ("valkey://:p%40ss@host", Config(address="host:6379", password="p@ss")),
        ("valkey://me:p:w@host", Config(address="host:6379", username="me", password="p:w")),
        ("unix:///run/v.sock?db=2", Config(address="/run/v.sock", db=2)),
        ("valkey://host?read_timeout_s=9", Config(address="host:6379", read_timeout_s=9)),
        (
            "valkey+sentinel://a,b:7000,[::1]/main",
            Config(sentinels=("a:26379", "b:7000", "[::1]:26379"), primary="main"),
        ),
        (
            "rediss+sentinel://me:p%2Cw@a/m%2F1/2?sentinel_username=s&sentinel_password=p%40",
            Config(
                sentinels=("a:26379",),
                primary="m/1",
                db=2,
                tls=True,
                username="me",
                password="p,w",
                sentinel_username="s",
                sentinel_password="p@",
            ),
        ),
    ],
)
def test_t01_a_url_equals_the_fields(url: str, config: Config) -> None:
    assert Config.from_url(url) == config


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("http://host", "url"),
        ("host:6379", "url"),
        ("valkey://", "url"),
        ("valkey://host:0", "url"),
        ("valkey://host:secret-word", "url"),
        ("unix://relative", "url"),
        ("valkey://host/one", "db"),
        ("valkey://host?read_timeout_s=soon", "read_timeout_s"),
        ("valkey://host?colour=red", "url"),
        ("valkey://a,b", "url"),
        ("valkey+sentinel://a,b", "url"),
        ("valkey+sentinel://a,:7/main", "url"),
        ("valkey+sentinel://a,b:secret-word/main", "url"),
        ("valkey+sentinel://a,/main", "url"),
        ("unix+sentinel:///run/v.sock", "url"),
        ("valkey+sentinel://a,b/main/one", "db"),
    ],
)
def test_t01_a_wrong_url_names_the_field(url: str, place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.from_url(url)
    assert caught.value.field == place


def test_t01_passwords_are_never_shown() -> None:
    config = Config.from_url("valkey://me:secret-word@host:6379")
    assert "secret-word" not in repr(config)
    by_sentinel = Config.from_url("valkey+sentinel://a/main?sentinel_password=secret-word")
    assert "secret-word" not in repr(by_sentinel)
    # An unescaped password may be parsed as a port: the error must not quote it.
    with pytest.raises(ConfigError) as caught:
        Config.from_url("valkey://host:secret-word")
    assert "secret-word" not in str(caught.value)
    assert "secret-word" not in repr(caught.value.__cause__)
