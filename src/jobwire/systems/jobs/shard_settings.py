"""Which shards there are, and where (G-1): the setting `jobs.shards`, and the prefix of each shard.

A shard is the whole wire under one key prefix. Pure.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast

from jobwire.valkey import Config, ConfigError

MAX_SHARDS: Final = 64

# Each begins with the number of its shard; the rest is chosen so that the slots of the first 2, 4,
# 8 … shards divide a Cluster into equal parts. Never changed: jobs are stored under them.
TAGS: Final = (
    "s00zm",
    "s01fd",
    "s02ac",
    "s03li",
    "s04ya",
    "s05ji",
    "s06cq",
    "s07py",
    "s08px",
    "s09lq",
    "s0aoa",
    "s0bhg",
    "s0csb",
    "s0dng",
    "s0ecl",
    "s0fdj",
    "s10ga",
    "s11ku",
    "s12bm",
    "s13ax",
    "s14dm",
    "s15gx",
    "s16aa",
    "s17mu",
    "s18bu",
    "s19na",
    "s1abp",
    "s1bzj",
    "s1cnn",
    "s1dcv",
    "s1eqa",
    "s1fvg",
    "s20nr",
    "s21mg",
    "s22tb",
    "s23xv",
    "s24rb",
    "s25aj",
    "s26hr",
    "s27kg",
    "s28dg",
    "s29xn",
    "s2adb",
    "s2bcd",
    "s2cxa",
    "s2ded",
    "s2eho",
    "s2foi",
    "s30cc",
    "s31ow",
    "s32in",
    "s33ug",
    "s34on",
    "s35sg",
    "s36ec",
    "s37yj",
    "s38iv",
    "s39jc",
    "s3ais",
    "s3bnu",
    "s3czq",
    "s3dhu",
    "s3ezb",
    "s3fbx",
)

_Place: TypeAlias = tuple[str, str, int]
"""An address, the name of a primary that sentinels know, and a database."""
_NUMBER: Final = re.compile(r"\d{1,2}")
_NEXT_PAIR: Final = re.compile(r",(?=[^,=:/?@]*=)")
"""The comma before the next pair. Those between the hosts of a URL are not."""
_HASH_TAG: Final = re.compile(r"\{[^}]+\}")


@dataclass(frozen=True, slots=True)
class ShardList:
    """The value of `jobs.shards`: how many shards `valkey.url` has, or the URL of each shard."""

    count: int = 0
    """0: no shards, the wire is used as it is."""
    urls: Mapping[int, str] = field(default_factory=dict[int, str], repr=False)

    @classmethod
    def from_setting(cls, raw: object) -> "ShardList":
        """Read it; ValueError with what is wrong. In a variable, a mapping is written as
        `0=valkey://a,1=valkey://b`."""
        if isinstance(raw, str) and "=" in raw:
            return cls(0, _read_urls(_read_pairs(raw)))
        if isinstance(raw, str):
            if not _NUMBER.fullmatch(raw.strip()) or int(raw) > MAX_SHARDS:
                raise ValueError(f"{raw!r} is not a number of shards; it must be 0-{MAX_SHARDS}")
            return cls(int(raw))
        if not isinstance(raw, Mapping):
            raise ValueError("must be a number, or a mapping of numbers to URLs")
        urls = _read_urls(cast("Mapping[object, object]", raw).items())
        if not urls:
            raise ValueError("names no shard")
        return cls(0, urls)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the shards; empty without shards."""
        return tuple(self.urls) or tuple(range(self.count))

    def shown(self) -> object:
        """For `jobwire config`, which masks the URLs."""
        return self.urls or self.count

    def prefix(self, number: int, key_prefix: str) -> str:
        """The prefix of a shard's keys: on one server each has its own, with a hash tag."""
        return key_prefix if self.urls else f"{key_prefix}{{{TAGS[number]}}}:"

    def faults(self, key_prefix: str) -> Iterator[str]:
        """What cannot be used."""
        if self.urls and 0 not in self.urls:
            yield "has no shard 0, which holds the jobs from before there were shards"
        for number, url in self.urls.items():
            try:
                Config.from_url(url)
            except ConfigError as error:
                yield f"the URL of shard {number} {str(error).partition(': ')[2]}"
        places = [_places(url) for url in self.urls.values()]
        if len(frozenset[_Place]().union(*places)) < sum(map(len, places)):
            yield (
                "two shards have the same URL, or URLs of the same database: each needs its own "
                "server or database"
            )
        if self.count and _HASH_TAG.search(key_prefix):
            yield "jobs.key_prefix has a hash tag, so all shards would be in one slot; remove it"


def _places(url: str) -> frozenset[_Place]:
    """Where a URL leads, however it is written: two URLs with a common place have the same keys."""
    try:
        config = Config.from_url(url)
    except ConfigError:  # a fault of its own
        return frozenset({(url, "", 0)})
    addresses = config.sentinels or config.nodes or (config.address,)
    return frozenset((address, config.primary, config.db) for address in addresses)


def _read_pairs(text: str) -> Iterator[tuple[str, str]]:
    """The pairs of `0=valkey://a,1=valkey+sentinel://b,c/main`."""
    for pair in _NEXT_PAIR.split(text.rstrip(", ")):
        number, _, url = pair.partition("=")
        yield number.strip(), url.strip()


def _read_urls(pairs: Iterable[tuple[object, object]]) -> dict[int, str]:
    urls: dict[int, str] = {}
    for number, url in pairs:
        if not _NUMBER.fullmatch(str(number)) or int(str(number)) >= MAX_SHARDS:
            raise ValueError(
                f"{number!r} is not the number of a shard; it must be 0-{MAX_SHARDS - 1}"
            )
        if not isinstance(url, str) or "://" not in url:
            raise ValueError(f"shard {number}: must be a URL, as valkey://host:6379/0")
        if int(str(number)) in urls:
            raise ValueError(f"shard {number} is set twice")
        urls[int(str(number))] = url
    return dict(sorted(urls.items()))
