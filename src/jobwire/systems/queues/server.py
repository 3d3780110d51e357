"""The server of the queues: `queues.url`, else the Valkey server of the program."""

from jobwire.settings import Settings, SettingsError
from jobwire.systems.queues.settings import QueuesSettings
from jobwire.valkey import Config, ConfigError, Connection


def queues_server(settings: Settings, valkey: Connection) -> Connection | Config:
    """The address in `queues.url`, else the connection of the program; SettingsError if the URL is
    wrong."""
    queues = settings.queues
    if not queues.url:
        return valkey
    try:
        return queues_config(queues)
    except ConfigError as error:
        if error.field == "tag":
            fault = "queues.prefix: needs a hash tag on a Cluster; set it to '{bull}'"
            raise SettingsError([fault]) from error
        raise SettingsError([f"queues.url: {error}"]) from error


def queues_config(queues: QueuesSettings) -> Config:
    """How to reach the keys of the queues at `queues.url`; ConfigError if it or the prefix is
    wrong."""
    return Config.from_url(queues.url).for_keys(queues.prefix)
