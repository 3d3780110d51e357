"""The key pair of the upload tokens, by the settings."""

from typing import Final

from jobwire.private_files import read_private, write_private
from jobwire.settings import Settings
from jobwire.systems.images.tokens import new_key_pair, public_pem, read_private_key

__all__ = [
    "PRIVATE_FILE",
    "PUBLIC_FILE",
    "new_key_pair",
    "private_key",
    "public_key",
]

PRIVATE_FILE: Final = "token-private.pem"
PUBLIC_FILE: Final = "token-public.pem"


def private_key(settings: Settings) -> str:
    """The API's key: of the settings, else of the data dir, where it is made once."""
    if settings.images.token_private_key:
        return settings.images.token_private_key
    folder = settings.data_dir / "images"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / PRIVATE_FILE
    if not file.exists():
        write_private(file, new_key_pair()[0])
    pem = read_private(file).decode()
    write_private(folder / PUBLIC_FILE, public_pem(read_private_key(pem)))
    return pem


def public_key(settings: Settings) -> str:
    """The upload gateway's key: of the settings, else the one that belongs to the API's."""
    if settings.images.token_public_key:
        return settings.images.token_public_key
    return public_pem(read_private_key(private_key(settings))).decode()
