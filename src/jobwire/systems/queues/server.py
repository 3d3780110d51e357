"""The server of the queues: `queues.url`, else the Valkey server of the program."""

from jobwire.settings import Settings, SettingsError
from jobwire.valkey import Config, ConfigError, Connection


def queues_server(settings: Settings, valkey: Connection) -> Connection | Config:
    """The address in `queues.url`, else the connection of the program; SettingsError if the URL is
    wrong."""
    try:
        return Config.from_url(settings.queues.url) if settings.queues.url else valkey
    except ConfigError as error:
        raise SettingsError([f"queues.url: {error}"]) from error
