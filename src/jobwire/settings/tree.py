"""The tree of all settings: one line per section.

Imports only the `settings.py` of each package.
"""

from dataclasses import dataclass, field
from pathlib import Path

from jobwire.gateway.settings import GatewaySettings
from jobwire.handlers.llm.settings import LlmSettings
from jobwire.local.settings import UpSettings
from jobwire.log import LoggingSettings
from jobwire.objects.settings import ObjectsSettings
from jobwire.systems.images.settings import ImagesSettings, ImageStreamsSettings
from jobwire.systems.jobs.settings import StreamsSettings as JobsSettings
from jobwire.systems.predictions.settings import PredictionsSettings
from jobwire.systems.queues.settings import QueuesSettings
from jobwire.valkey.settings import ValkeySettings
from jobwire.worker.settings import WorkerSettings


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings; frozen and checked."""

    data_dir: Path = Path(".jobwire")
    """The data of `jobwire up`; clients find the running program there."""
    systems: tuple[str, ...] = ()
    """The systems to run, as `jobs,predictions`; empty: all that have their servers."""
    up: UpSettings = field(default_factory=UpSettings)
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    valkey: ValkeySettings = field(default_factory=ValkeySettings)
    objects: ObjectsSettings = field(default_factory=ObjectsSettings)
    jobs: JobsSettings = field(default_factory=JobsSettings)
    queues: QueuesSettings = field(default_factory=QueuesSettings)
    images: ImagesSettings = field(default_factory=ImagesSettings)
    streams: ImageStreamsSettings = field(default_factory=ImageStreamsSettings)
    predictions: PredictionsSettings = field(default_factory=PredictionsSettings)
    llm: LlmSettings = field(default_factory=LlmSettings)
    logging: LoggingSettings = field(default_factory=LoggingSettings)
