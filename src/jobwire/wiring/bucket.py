"""The bucket that the settings name, or else the one of the program that runs here, and the rules
that keep it clean. For `jobwire doctor` and `jobwire lifecycle`."""

from typing import NamedTuple

from jobwire import endpoints
from jobwire.objects import BucketConfig
from jobwire.settings import Loaded
from jobwire.wires.predictions.contract import LIFECYCLE

RULES = LIFECYCLE


class KnownBucket(NamedTuple):
    """A bucket, and what to do if it does not answer."""

    config: BucketConfig
    fix: str


def known_bucket(loaded: Loaded) -> KnownBucket | None:
    """None where nobody names one."""
    settings = loaded.settings
    if settings.objects.endpoint:
        cure = "start it, or correct objects.endpoint and its keys"
        return KnownBucket(settings.objects.config(), cure)
    card = endpoints.read(settings.data_dir)
    if card is None or card.s3 is None:
        return None
    config = BucketConfig(**{name: getattr(card.s3, name) for name in card.s3.__struct_fields__})
    return KnownBucket(config, "start everything here: jobwire up")
